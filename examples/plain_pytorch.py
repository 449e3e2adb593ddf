"""A training loop of your own, made private: the one line that computes gradients is replaced, and paid for beforehand.

    python examples/plain_pytorch.py

Everything else stays PyTorch: your model, any optimizer, your schedule. Each step draws a secret Poisson batch, clips
every record's gradient, adds noise from the operating system's entropy, and is in the ledger before the batch is drawn.
"""

from pathlib import Path

import torch
from torch import Tensor, nn

from fedfdp.core.errors import BudgetError
from fedfdp.data import Federation, load
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy import DPSGD, Ledger
from fedfdp.privacy.noise.secure import Secure
from fedfdp.training.client import LocalClient


def train(model: nn.Module, x: Tensor, y: Tensor, *, privacy: DPSGD, ledger: Ledger, steps: int, lr: float) -> int:
    """Private SGD until the steps are done or the budget is; returns the steps taken."""
    (data,) = Federation.from_clients({ledger.client: (x, y)}, test_fraction=0.0).clients
    learner, weights = Learner(model, cross_entropy), {name: p.data for name, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.5)
    for step in range(steps):
        try:
            attempt = ledger.charge(step, f"step {step}", [privacy.event()], replayable=False)
        except BudgetError:
            return step
        client = LocalClient(data, learner, privacy=privacy, randomness=Secure(), round=step, attempt=attempt)
        (batch,) = client.batches(steps=1, epochs=None, batch_size=1)
        released = batch.release(weights, coefficient=PlainClip(privacy.clip))  # instead of loss.backward()
        for name, parameter in model.named_parameters():
            parameter.grad = released.gradient[name]
        optimizer.step()
    return steps


def main(ledger_file: Path | None = None) -> float:
    digits = load("digits")
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    privacy = DPSGD(sigma=2.0, q=0.1, clip=1.0)
    account = {"data": "digits", "config": "plain loop", "budget": 3.0, "delta": 1e-5}
    with Ledger.open(ledger_file, client="me", **account) as ledger:  # type: ignore[arg-type]
        taken = train(model, digits.x, digits.y, privacy=privacy, ledger=ledger, steps=40, lr=0.5)
        spent = ledger.epsilon()
    accuracy = float((model(digits.x).argmax(1) == digits.y).float().mean())
    print(f"{taken} steps, ε = {spent:.3f} at δ = 1e-5, accuracy {accuracy:.1%} on the records trained on")
    return accuracy


if __name__ == "__main__":
    main()
