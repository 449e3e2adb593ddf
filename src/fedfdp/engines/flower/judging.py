"""A node's evaluations: measures of its raw test records, given only if its owner allows it, and counted.

Training records are never judged. Test records have no guarantee: whoever may ask often enough can find out what they
are. So the count is on the disk before an answer leaves, and ends at the number that the policy allows.
"""

import hashlib
import json
import logging
from pathlib import Path

import torch

from fedfdp.core import files
from fedfdp.core.errors import RunError, SettingError
from fedfdp.core.records import Weights
from fedfdp.data import ClientData, Federation
from fedfdp.data.shard import Shard
from fedfdp.engines.flower.messages import Judged
from fedfdp.engines.flower.policy import RefusalError
from fedfdp.engines.flower.sides import contents
from fedfdp.fairness.metrics import measures
from fedfdp.models.learner import Learner
from fedfdp.training.evaluation import LocalEvaluator

log = logging.getLogger("fedfdp.node")

EVALUATIONS = "evaluations.json"


class Evaluations:
    """How many evaluations a node has answered, in all runs of all coordinators, and how many it may."""

    def __init__(self, folder: Path, most: int, witness: Path) -> None:
        """`witness`: where the ledger's second copy is; a second count is beside it, and the larger one holds."""
        self.most, self._paths = most, _counts(folder, witness)
        self.answered = answered(folder, witness)

    def check(self) -> None:
        if self.answered >= self.most:
            raise RefusalError(f"policy.evaluations does not allow more than {self.most} in all")

    def judge(self, weights: Weights, learner: Learner, federation: Federation) -> Judged:
        """Counts before it judges, as a ledger charges before a batch is drawn: a lost answer counts."""
        self.answered += 1
        for path in self._paths:
            files.write_whole(path, json.dumps({"answered": self.answered}).encode())
        found = LocalEvaluator(learner, federation, answers=False).test(weights)
        got = measures(found)
        return Judged(got["loss"], got["accuracy"], int(found.records[0]), self.answered)


def answered(folder: Path, witness: Path) -> int:
    """How many evaluations a node has answered, also if an older copy of its folder was put back."""
    found = [0]
    for path in _counts(folder, witness):
        try:
            found += [int(json.loads(path.read_text())["answered"])] if path.exists() else []
        except (ValueError, KeyError, TypeError):
            raise RunError(f"{path} is corrupt; put back a copy, or write the number of evaluations given") from None
    return max(found)


def _counts(folder: Path, witness: Path) -> tuple[Path, Path]:
    return folder / EVALUATIONS, witness.with_name(f"{witness.name}.{EVALUATIONS}")


def check_apart(client: ClientData, *, split_given: bool) -> None:
    """Raises where a record, or a person, is for training and for the test: its raw measures would leave the node.

    Equal content alone proves nothing, since a table of few columns has many equal rows: the owner is told how many.
    It is an error only if the owner gave the test records and all of them are training records too.
    """
    train, test = client.train, client.test
    if torch.isin(train.index, test.index).any():
        raise _not_apart("some test records are training records")
    if train.unit is not None and (both := _common(train.unit[train.index], train.unit[test.index])):
        raise _not_apart(f"{both:,} persons have training records and test records")
    known = set(_digests(train))
    if not (same := sum(content in known for content in _digests(test))):
        return
    if split_given and same == len(test):
        raise _not_apart(f"every one of the {same:,} test records is equal to a training record")
    log.warning("%s test records are equal to training records in every value; evaluation shows them as they are", same)


def _not_apart(what: str) -> SettingError:
    return SettingError("policy.evaluate", True, f"{what}, and would leave un-noised", "take them out of the test part")


def _common(one: torch.Tensor, other: torch.Tensor) -> int:
    return len(set(one.tolist()) & set(other.tolist()))


def _digests(shard: Shard) -> list[bytes]:
    return [hashlib.blake2b(content, digest_size=16).digest() for content in contents(shard)]
