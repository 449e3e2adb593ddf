"""The private step inside a Flower ClientApp that you already have: `train` computes private gradients, and pays first.

Strategy, ServerApp and messages stay as they are. The ledger's path comes from the SuperNode's own settings, so that
the account survives restarts and is the same whichever run asks:

    flower-supernode --node-config 'client="north" ledger="/var/lib/north/ledger.jsonl" epsilon=2.0' …
"""

from pathlib import Path

import torch
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import Tensor, nn

from fedfdp.data import Federation
from fedfdp.fairness.coefficients import PlainClip
from fedfdp.models.learner import Learner
from fedfdp.models.losses import cross_entropy
from fedfdp.privacy import DPSGD, Ledger
from fedfdp.privacy.noise.secure import Secure
from fedfdp.training.client import LocalClient

PRIVACY = DPSGD(sigma=2.0, q=0.1, clip=1.0)
LR, STEPS = 0.5, 2

app = ClientApp()


def your_model() -> nn.Module:
    return nn.Linear(8, 2)


def your_records(client: str) -> tuple[Tensor, Tensor]:
    x = torch.randn(200, 8, generator=torch.Generator().manual_seed(len(client)))
    return x, (x.sum(1) > 0).long()


@app.train()  # type: ignore[untyped-decorator]
def train(message: Message, context: Context) -> Message:
    """The app's own round, with its backward pass replaced."""
    given, name = context.node_config, str(context.node_config["client"])
    model = your_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    (data,) = Federation.from_clients({name: your_records(name)}, test_fraction=0.0).clients
    learner, weights = Learner(model, cross_entropy), {n: p.data for n, p in model.named_parameters()}
    round_, account = int(message.content["config"]["server-round"]), {"data": name, "config": "all runs"}
    with Ledger.open(
        Path(str(given["ledger"])), client=name, budget=float(given["epsilon"]), delta=1e-5, **account
    ) as ledger:
        # Paid, and on the disk, before a batch is drawn: STEPS batches, each with its gradient alone
        attempt = ledger.charge(round_, str(message.metadata.message_id), [PRIVACY.event()] * STEPS, replayable=False)
        spent = ledger.epsilon_so_far()
    client = LocalClient(data, learner, privacy=PRIVACY, randomness=Secure(), round=round_, attempt=attempt)
    for batch in client.batches(steps=STEPS, epochs=None, batch_size=1):
        gradient = batch.release(weights, coefficient=PlainClip(PRIVACY.clip)).gradient
        for parameter, g in zip(weights.values(), gradient.values(), strict=True):
            parameter.sub_(g, alpha=LR)
    metrics = MetricRecord({"epsilon": spent, "num-examples": len(data.train)})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)
