"""What a node's ledger shows to its owner, its doctor and its data protection officer; the node may be running.

If an older ledger was put back, its second copy has more. Both count then, and it is said.
"""

import json
from collections.abc import Callable
from pathlib import Path

from fedfdp.core.errors import DamagedError, RunError
from fedfdp.engines.flower.book import LEDGER, with_remedy
from fedfdp.engines.flower.witness import MARK, Witness
from fedfdp.privacy.accounting.events import history_of, merge
from fedfdp.privacy.ledger.file import Entry, entry_of
from fedfdp.privacy.ledger.reading import Charges, read_ledger


def read_node(
    folder: Path, second: Path | None = None, each: Callable[[Entry], object] | None = None
) -> tuple[Charges, str]:
    """All charges of a node, and a warning if the ledger in its folder has not all of them; empty if it has.

    `second`: where the second copy is; None: where the folder says. `each` is called with every charge.
    """
    ledger = folder / LEDGER
    witness = Witness(second or second_of(folder), ledger)
    lost, warning = witness.lost(), ""  # before the ledger is read: a node that runs makes that one longer first
    try:
        witness.check()
    except RunError as error:
        warning = f"{error}. Until then, what both copies have is counted"
    if lost and not ledger.is_file():
        charges = Charges(json.loads(witness.lines().splitlines()[0]))
    else:
        try:
            charges = read_ledger(ledger, each)
        except DamagedError as error:
            raise with_remedy(error) from None
    for entry in map(entry_of, map(json.loads, lost)):
        if each is not None:
            each(entry)
        known = charges.histories.get(entry.client, ())
        charges.histories[entry.client] = merge(known, history_of(entry.events))
    return charges, warning


def second_of(folder: Path) -> Path:
    """Where the node wrote its second copy, or where it is unless its owner says otherwise."""
    mark = folder / MARK
    written = Path(mark.read_text().strip()) if mark.is_file() else None
    return written if written is not None and written.is_file() else folder.with_name(folder.name + ".witness")
