"""Ways past the mechanism that models, losses and lost files could open. Each of them is shut."""

import shutil

import pytest
import torch
from torch import Tensor, nn

import fedfdp
from fedfdp.algorithms.base import LossQuery
from fedfdp.core.errors import RunError, SettingError
from fedfdp.data import Federation
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.noise.secure import Secure
from fedfdp.training.client import LocalClient
from support import Given

PRIVATE = fedfdp.DPSGD(delta=1e-5, epsilon=50.0, sigma=2.0, sigma_loss=5.0, q=1.0, clip=1.0)


def holders(first: float = 0.0) -> Federation:
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(20, 4, generator=generator), torch.arange(20) % 2
    x[0] += first
    return Federation.from_clients({"a": (x, y, x, y), "b": (x, y, x, y)})


def released_loss(model: nn.Module, loss, first: float, *, local: bool) -> float:
    client = LocalClient(holders(first).clients[0], Learner(model, loss), privacy=PRIVATE, randomness=Given(), round=0)
    batch = next(iter(client.batches(steps=1, epochs=None, batch_size=1)))
    start = client.learner.initial()
    query = LossQuery(2.5, at=(lambda gradient: start) if local else None)
    answer = batch.release(start, coefficient=PlainClip(1.0), loss=query).loss
    assert answer is not None
    return answer * PRIVATE.q * client.records  # the noise is off: the clamped sum


class Centred(nn.Module):
    """Mixes records: each is seen relative to the batch's mean."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x - x.mean(0))


def mixed_value(output: Tensor, y: Tensor) -> Tensor:
    """A loss whose gradient is each record's own, and whose value is everyone's."""
    own = cross_entropy(output, y)
    return own - own.detach() + own.detach().mean()


@pytest.mark.parametrize("local", [True, False])
@pytest.mark.parametrize(("model", "loss"), [(Centred(), cross_entropy), (nn.Linear(4, 2), mixed_value)])
def test_one_record_moves_the_released_loss_by_its_bound_at_most(model, loss, local):
    sums = [released_loss(model, loss, first, local=local) for first in (0.0, 1e4, -1e4)]
    assert max(sums) - min(sums) <= 2.5 * (1 + 1e-6)


class Remembering(nn.Module):
    """Keeps the largest value of each column in a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        self.seen = torch.maximum(self.seen, x.amax(0))
        return self.linear(x)


@pytest.mark.parametrize("loss_at", ["global", "local"])
def test_no_record_reaches_the_model_through_a_buffer(loss_at):
    method = fedfdp.FedFDP(lr=0.1, loss_at=loss_at)
    result = fedfdp.train(Remembering(), holders(), algorithm=method, privacy=PRIVATE, rounds=2, eval_every=1)
    assert result.model.seen.tolist() == [0.0] * 4


class SelfTrained(nn.Module):
    """Makes a backward pass of its own on every forward pass."""

    def __init__(self, backward) -> None:
        super().__init__()
        self.first, self.last, self.backward = nn.Linear(4, 3), nn.Linear(3, 2), backward

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.first(x)
        if hidden.requires_grad:
            self.backward(hidden.square().sum())
        return self.last(hidden.tanh())


@pytest.mark.parametrize("backward", [Tensor.backward, torch.autograd.backward])
def test_a_backward_pass_of_the_models_own_does_not_reach_its_parameters(backward):
    model = SelfTrained(lambda loss: backward(loss, retain_graph=True))
    x, y = torch.randn(5, 4), torch.arange(5) % 2
    found = clipped_sum(model, cross_entropy, x, y, clip=1e6)
    assert all(parameter.grad is None for parameter in model.parameters())
    plain = nn.Sequential(model.first, nn.Tanh(), model.last)
    right = torch.autograd.grad(cross_entropy(plain(x), y).sum(), list(model.parameters()))
    for sums, gradient in zip(found.grads.values(), right, strict=True):
        torch.testing.assert_close(sums, gradient)


@pytest.mark.parametrize("randomness", [Given(noise=0.5), Secure()])
def test_asking_for_batches_again_gives_other_batches_and_other_noise(randomness):
    client = LocalClient(
        holders().clients[0],
        Learner(nn.Linear(4, 2), cross_entropy),
        privacy=PRIVATE,
        randomness=randomness,
        round=0,
    )
    steps = [batch.step for _ in range(2) for batch in client.batches(steps=2, epochs=None, batch_size=1)]
    assert steps == [0, 1, 2, 3]


class HiddenDropout(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(nn.functional.dropout(x, 0.5, self.training))


def test_what_a_forward_pass_draws_comes_from_the_run():
    torch.manual_seed(0)
    model, results = HiddenDropout(), []
    for seed in (1, 2):
        torch.manual_seed(seed)
        results.append(fedfdp.train(model, holders(), privacy=PRIVATE, rounds=2, eval_every=1))
    assert torch.equal(results[0].model.linear.weight, results[1].model.linear.weight)
    assert results[0].history == results[1].history


def stopped(folder, **options) -> dict:
    def stop(update) -> None:
        if update.step.round == 3:
            raise KeyboardInterrupt

    torch.manual_seed(0)
    settings = {"privacy": PRIVATE, "rounds": 5, "out": folder} | options
    model = nn.Linear(4, 2)
    with pytest.raises(KeyboardInterrupt):
        fedfdp.train(model, holders(), on_update=stop, **settings)
    return {"model": model, "federation": holders(), "resume": True, **settings}


def test_a_run_does_not_go_on_with_a_lost_or_an_older_ledger(tmp_path):
    settings = stopped(tmp_path / "run")
    for path in (tmp_path / "run").glob("ledger.jsonl*"):
        path.rename(tmp_path / path.name)
    with pytest.raises(RunError, match=r"ledger.jsonl shows less than what was spent .*\(0 of 6 charges\)"):
        fedfdp.train(**settings)
    for path in tmp_path.glob("ledger.jsonl*"):
        shutil.copy(path, tmp_path / "run" / path.name)
    assert fedfdp.train(**settings).summary["rounds"] == 5


def test_a_run_does_not_go_on_with_another_loss(tmp_path):
    settings = stopped(tmp_path / "run")
    with pytest.raises(RunError, match="was started with another loss"):
        fedfdp.train(**settings, loss=mixed_value)


def test_a_budget_for_a_client_that_does_not_exist_is_refused():
    private = fedfdp.DPSGD(delta=1e-5, epsilon=50.0, sigma=2.0, q=1.0, budgets={"aa": 1.0}, sigma_loss=5.0)
    with pytest.raises(SettingError, match=r"privacy.budgets.aa = 1.0: no such client; did you mean 'a'\?"):
        fedfdp.train(nn.Linear(4, 2), holders(), privacy=private, rounds=2)
