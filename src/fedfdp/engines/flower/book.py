"""A node's ledger: one for every run, coordinator and version of the records, under the rule of its owner's policy."""

from pathlib import Path

from fedfdp.engines.flower.policy import NodeConfig
from fedfdp.privacy.ledger import LedgerBook
from fedfdp.privacy.ledger.periods import Dates, Today

LEDGER = "ledger.jsonl"


def open_book(config: NodeConfig, today: Today) -> LedgerBook:
    """Begins or goes on with it; one process at a time can have it."""
    policy = config.policy
    return LedgerBook.open(
        Path(config.folder) / LEDGER,
        data=f"all records of {config.name}",
        config="all runs",
        budgets={config.name: policy.epsilon},
        delta=policy.delta,
        accountant=policy.accountant,
        expects=[policy.dearest],  # by what the owner allows, not by what a coordinator asks for first
        dates=Dates(today, policy.limit),
    )
