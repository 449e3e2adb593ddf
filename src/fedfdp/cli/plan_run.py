"""fedfdp plan run.toml: what was given, what is chosen and why, and how far the signal stands out of the noise.

It counts the records of each holder and reads nothing else of them.
"""

import json
from dataclasses import asdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from fedfdp.runs.config import Config
    from fedfdp.training.defaults import Settled
    from fedfdp.training.facts import PublicFacts
    from fedfdp.training.strength import Strength

MOST_HOLDERS = 12  # that are listed one by one


def show_plan(source: str, overrides: list[str], *, as_json: bool) -> None:
    """Prints the plan of a run, as tables or as JSON."""
    from dataclasses import replace

    from rich import console as rich_console

    from fedfdp.cli.data_progress import Progress
    from fedfdp.runs import config as configs
    from fedfdp.runs.build import facts_of, federation_of
    from fedfdp.training.strength import Strength

    config = configs.load(source, overrides)
    with Progress(rich_console.Console(stderr=True), config.data.source) as say:
        federation = federation_of(config, progress=say)
    config = replace(config, model=config.model.fitted(federation.input_shape, tokens=federation.tokens))
    facts = facts_of(config, federation)
    settled = config.settled(facts)
    strength = None
    if settled.privacy is not None:
        share = config.participation.fraction
        strength = Strength.of(facts, settled.algorithm, settled.privacy, settled.rounds, share)
    said = _warnings(config, settled, strength)
    if as_json:
        print(json.dumps(_plan(config, facts, settled, strength, said)))
        return
    _print(rich_console.Console(highlight=False), config, facts, settled)
    if strength is not None:
        _print_strength(rich_console.Console(highlight=False), list(federation.names), facts, strength)
    for line in said:
        print(f"- {line}")


def _warnings(config: "Config", settled: "Settled", strength: "Strength | None") -> list[str]:
    from fedfdp.training.budget import unspent

    if settled.privacy is None or strength is None:
        return []
    share, before = config.participation.fraction, config.data.before
    left = unspent(settled.privacy, settled.algorithm, settled.rounds, share=share, before=before)
    return [line for line in (left, strength.warning(settled.privacy.epsilon)) if line]


def _plan(
    config: "Config", facts: "PublicFacts", settled: "Settled", strength: "Strength | None", said: list[str]
) -> dict[str, object]:
    return {
        "facts": asdict(facts),
        "model": asdict(config.model),
        "chosen": {choice.setting: {"value": choice.value, "why": choice.why} for choice in settled.choices},
        "settings": config.resolved(facts).to_dict(),
        "signal_over_noise": None if strength is None else asdict(strength),
        "warnings": said,
    }


def _print(console: "Console", config: "Config", facts: "PublicFacts", settled: "Settled") -> None:
    from rich.table import Table

    sizes = f"{facts.total:,} training {facts.unit}s at {len(facts.sizes)} holders"
    if facts.unit != "record":
        sizes = f"{facts.total:,} values of {facts.unit} for training, at {len(facts.sizes)} holders"
    kind = "regression" if facts.classes is None else f"{facts.classes} classes"
    print(f"{config.data.source}: {sizes}, {kind}; model {config.model.name}, {facts.weights:,} trained weights")
    table = Table("setting", "value", "", box=None, pad_edge=False)
    chosen = {choice.setting for choice in settled.choices}
    for name, value in _given(config, settled).items():
        if name not in chosen:
            table.add_row(name, _text(value), "given")
    for choice in settled.choices:
        table.add_row(choice.setting, f"[bold]{_text(choice.value)}[/]", choice.why)
    console.print(table)


def _given(config: "Config", settled: "Settled") -> dict[str, object]:
    """The settings that the plan is about, as they will be used."""
    found: dict[str, object] = {"rounds": settled.rounds, "algorithm.lr": settled.algorithm.lr}
    if settled.privacy is not None:
        names = ("epsilon", "delta", "q", "sigma", "sigma_loss", "clip")
        found = {f"privacy.{name}": getattr(settled.privacy, name) for name in names} | found
    return found


def _text(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _print_strength(console: "Console", names: list[str], facts: "PublicFacts", strength: "Strength") -> None:
    from rich.table import Table

    print(f"signal over noise after all rounds: {strength.whole:.3g} together")
    rows = sorted(zip(names, facts.sizes, strength.by_client, strict=False), key=lambda row: row[1])
    if len(rows) > MOST_HOLDERS:
        half = MOST_HOLDERS // 2
        rows = [*rows[:half], *rows[-half:]]
        print(f"the {half} smallest and the {half} largest of {len(names)} holders:")
    table = Table("holder", "n", "signal over noise by itself", box=None, pad_edge=False)
    for name, size, ratio in rows:
        table.add_row(name, f"{size:,}", f"{ratio:.2g}")
    console.print(table)
