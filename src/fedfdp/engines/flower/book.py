"""A node's ledger: one for every run, coordinator and version of the records, under the rule of its owner's policy.

Its first line says for whom it was spent. A ledger that does not say it, as older ones, is one of records: a person is
not protected by what was spent for each of their records.
"""

import json
from collections.abc import Mapping
from pathlib import Path

from fedfdp.core.errors import DamagedError, SettingError
from fedfdp.engines.flower.policy import NodeConfig
from fedfdp.engines.flower.witness import REBUILD
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.ledger.periods import Dates, Today
from fedfdp.privacy.unit import RECORD

LEDGER = "ledger.jsonl"
_OF, _BY = "all records of ", ", by "


def open_book(config: NodeConfig, today: Today, unit: str | None = None) -> LedgerBook:
    """Begins or goes on with it; one process at a time can have it. `unit`: whom it is for, where config is silent."""
    policy, path = config.policy, Path(config.folder) / LEDGER
    kept = _kept(path)
    unit = unit or config.data.unit or kept or RECORD
    if kept is not None and unit != kept:
        fix = "put it back, or begin a new folder, with policy.epsilon less what this one has spent"
        raise SettingError("data.unit", unit, f"{path} was begun for each {kept}", fix)
    try:
        return LedgerBook.open(
            path,
            data=_OF + config.name + ("" if unit == RECORD else _BY + unit),
            config="all runs",
            budgets={config.name: policy.epsilon},
            delta=policy.delta,
            accountant=policy.accountant,
            expects=[policy.dearest],  # by what the owner allows, not by what a coordinator asks for first
            dates=Dates(today, policy.limit),
        )
    except DamagedError as error:
        raise with_remedy(error) from None


def with_remedy(error: DamagedError) -> DamagedError:
    """What can be done about a damaged ledger at a node; a run has another remedy."""
    return DamagedError(f"{str(error).rpartition('; ')[0]}; {REBUILD}")


def unit_of(header: Mapping[str, object]) -> str:
    """For whom a node's ledger was spent, by its first line."""
    said = str(header.get("data")).removeprefix(f"{_OF}{header.get('client')}")
    return said.removeprefix(_BY) if said.startswith(_BY) else RECORD


def _kept(path: Path) -> str | None:
    """The unit of the ledger that is there; None if there is none, or none that can be read: opening it will say so."""
    try:
        with open(path, "rb") as file:
            return unit_of(json.loads(file.readline()))
    except (OSError, ValueError, AttributeError):
        return None
