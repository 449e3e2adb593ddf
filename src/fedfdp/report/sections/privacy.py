"""The privacy statement of a run, as it was written; None where there is none."""

from fedfdp.privacy.unit import RECORD, Unit
from fedfdp.report.section import Json, Section, StoredRun
from fedfdp.runs.statement import promise


def _of_run(run: StoredRun) -> Json:
    said = run.privacy
    if said is None:
        return {"privacy": None, "unit": run.settings.get("data.unit") or RECORD}
    return {"privacy": said | _words(said), "unit": unit_of(said).one}


def unit_of(said: Json) -> Unit:
    """The unit of a statement; those of older runs name it in their sentence alone."""
    return Unit(said.get("one") or said["unit"].partition(" in column ")[2] or RECORD)


def _words(said: Json) -> Json:
    """What statements of older runs lack, from the numbers that they have."""
    if "guarantee" in said:
        return {}
    unit, m = unit_of(said), said["mechanism"]
    released = [f"{name}: {meaning}" for name, meaning in said["released"].items()]
    kept = f"q = {m['sampling']['q']:g}, C = {m['clip']:g}, σ = {m['sigma']:g}"
    return {
        "one": unit.one,
        "many": unit.many,
        "guarantee": promise(unit, said["epsilon"], said["epsilon_replace_one"], said["delta"], said["accountant"]),
        "working": f"{said['algorithm']}, {said['rounds']} rounds. {m['name']}: {kept}.",
        "leaves": [*released, f"the number of its {unit.many}, as a public fact"],
    }


SECTION = Section("privacy", "Privacy statement", _of_run)
