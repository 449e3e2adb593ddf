"""The privacy statement of a run, as it was written; None where there is none."""

from fedfdp.privacy.unit import Unit
from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    """With the words that statements of older runs lack, by the unit that they name."""
    unit = Unit(run.settings.get("data.unit") or "record")
    old = run.privacy
    if old is None or "guarantee" in old:
        return {"privacy": old, "unit": unit.one if old is None else old["one"]}
    m, sampling = old["mechanism"], old["mechanism"]["sampling"]
    other = old["epsilon_replace_one"]
    return {
        "unit": unit.one,
        "privacy": {
            **old,
            "one": unit.one,
            "many": unit.many,
            "guarantee": (
                f"Every {unit.one} of every client is protected with ε = {old['epsilon']:.4f} at δ = {old['delta']:g} "
                f"(zero-out of one {unit.one}; where one {unit.one} is replaced by another: "
                f"{'not known' if other is None else f'{other:.4f}'}), against a server that sees every upload. "
                f"Accountant: {old['accountant']}. Unit: {unit.in_words}."
            ),
            "working": (
                f"{old['algorithm']}, {old['rounds']} rounds. {m['name']}: q = {sampling['q']:g}, C = {m['clip']:g}, "
                f"σ = {m['sigma']:g}."
            ),
            "leaves": [
                *(f"{name}: {meaning}" for name, meaning in old["released"].items()),
                f"the number of its {unit.many}, as a public fact",
            ],
        },
    }


SECTION = Section("privacy", "Privacy statement", _of_run)
