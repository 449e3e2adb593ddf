"""Our own private step, and the same without its watch over the pass."""

import torch
from torch import Tensor

from fedfdp.bench.peers.base import Peer, Task
from fedfdp.core import weights as w
from fedfdp.core.records import Weights
from fedfdp.data import ClientData, Shard
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.clipping import by_rules
from fedfdp.privacy.clipping.proof.calls import Arguments, ExpectedCall, Function, Key, Keywords, tensors_in
from fedfdp.privacy.clipping.proof.follower import Follower
from fedfdp.privacy.dpsgd import DPSGD
from fedfdp.privacy.noise.randomness import Seeded
from fedfdp.training.client import LocalClient


class Ours(Peer):
    """The client's own private step: it draws a batch (here all records), clips, sums, noises; then the update."""

    def __init__(self, task: Task) -> None:
        setting = task.setting
        everyone, nobody = torch.arange(task.batch), torch.arange(0)
        self.data = ClientData("bench", Shard(task.x, task.y, everyone), Shard(task.x, task.y, nobody))
        self.learner = Learner(task.model, cross_entropy)
        self.privacy = DPSGD(epsilon=None, sigma=setting.sigma, q=1.0, clip=setting.clip)
        self.coefficient, self.lr = PlainClip(setting.clip), setting.lr
        self.here, self.steps = self.learner.initial(), 0

    def step(self) -> None:
        client = LocalClient(self.data, self.learner, privacy=self.privacy, randomness=Seeded(0), round=self.steps)
        (batch,) = client.batches(steps=1, epochs=None, batch_size=self.data.train.index.numel())
        w.add_(self.here, batch.release(self.here, coefficient=self.coefficient).gradient, scale=-self.lr)
        self.steps += 1

    def weights(self) -> Weights:
        return w.clone(self.here)


class Unwatched(Ours):
    """Ours without the comparison of every call with the proven pass: what that costs. It protects nobody."""

    def step(self) -> None:
        used = vars(by_rules)
        watched = {name: used[name] for name in _UNWATCHED}
        used.update(_UNWATCHED)
        try:
            super().step()
        finally:
            used.update(watched)


class _Trusting(Follower):
    """Takes every call for the one that is expected: parameters meet the records where they did before."""

    def entered(self, number: int, tensor: Tensor) -> None:
        pass

    def key(self, args: Arguments, kwargs: Keywords) -> Key:
        """Which values are among the arguments, nothing to compare: the rules need no more."""
        tensors = [*tensors_in(args), *tensors_in(kwargs)]
        self.used = [self.trained[id(tensor)] for tensor in tensors if id(tensor) in self.trained]
        self.given = [(tensor, tensor._version, self.reference(tensor)) for tensor in tensors]
        return tuple([reference for _, _, reference in self.given])

    def expect(self, func: Function, key: Key) -> ExpectedCall:
        assert self._coming is not None
        return self._coming

    def note(self, func: Function, key: Key, result: object, args: Arguments, kwargs: Keywords) -> None:
        self._coming = next(self._ahead, None)
        self.numbered(result)

    def ended(self) -> None:
        pass


_UNWATCHED = {"Follower": _Trusting, "_check_backward": lambda losses, job, tape: None}
