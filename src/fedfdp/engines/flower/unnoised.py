"""A node's count of the rounds that it answered without noise, which its ledger does not show.

Only an owner who sets policy.without_privacy allows them. The count is on the disk before records are read for one, and
beside the ledger's second copy too: if an older folder is put back, the larger number holds.
"""

import json
import logging
from pathlib import Path

from fedfdp.core import files
from fedfdp.core.errors import RunError
from fedfdp.privacy.ledger.periods import Today
from fedfdp.privacy.unnoised import Unnoised, of_dict

log = logging.getLogger("fedfdp.node")

UNNOISED = "unnoised.json"
ASSUMED = "assumed after a restore"  # the run of the charge by which a ledger shows that what was lost is not known


class Counted:
    """The count of a node that runs."""

    def __init__(self, folder: Path, witness: Path, today: Today) -> None:
        """`witness`: where the ledger's second copy is; a second count is beside it."""
        self._paths, self._today = _counts(folder, witness), today
        self.found = unnoised(folder, witness)

    def note(self, run: str, method: str) -> None:
        """One round more, on the disk when it returns: an answer that is lost counts too."""
        self.found = self.found.add(run, method, self._today().isoformat())
        content = json.dumps(self.found.to_dict()).encode()
        for path in self._paths:
            files.write_whole(path, content)
        log.warning("policy.without_privacy: a round of run %s is answered without noise; no ε covers it", run)


def unnoised(folder: Path, witness: Path) -> Unnoised:
    """What both counts have, also if an older copy of the folder was put back."""
    found, both = Unnoised(), _counts(folder, witness)
    for path, other in zip(both, reversed(both), strict=True):
        try:
            found = found.merge(of_dict(json.loads(path.read_bytes()))) if path.exists() else found
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{path} is corrupt; put back a copy of it, such as {other}") from None
    return found


def _counts(folder: Path, witness: Path) -> tuple[Path, Path]:
    return folder / UNNOISED, witness.with_name(f"{witness.name}.{UNNOISED}")
