"""Augmentation multiplicity: several views of a record, averaged before clipping, at no extra cost in privacy.

    python examples/views.py --views 1,4 --rates 16        # the numbers of docs/models.md

Every view is a record, and the image it was made of is its `unit`: all gradients of a unit are added up, and the sum is
cut to C. So an image moves the total by no more than C, however many views it has. The images of the test stay as they
are. FashionMNIST, a fifth of its records, ten holders by Dirichlet(1), DP-FedAvg at ε = 3.52.
"""

import argparse

import torch
from torch import Tensor

import fedfdp
from fedfdp.data import load
from fedfdp.models.zoo import linear, small_cnn

EPSILON, ROUNDS, SOURCE = 3.52, 150, "fashion-mnist"
MODELS = {"small-cnn": small_cnn, "linear": linear}


def views_of(x: Tensor, count: int) -> Tensor:
    """(records, views, …): the image, its mirror image, then both moved by a pixel, to the right and to the left."""
    moves = [(flipped, step) for step in (0, 1, -1) for flipped in (False, True)]
    shown = [(x.flip(-1) if flipped else x).roll(step, -1) for flipped, step in moves[:count]]
    return torch.stack(shown, 1)


def holders(count: int, seed: int, source: str = SOURCE, fraction: float = 0.2) -> fedfdp.Federation:
    """Ten clients whose training images have so many views each."""
    dealt = fedfdp.Federation.partition(load(source), clients=10, beta=1.0, seed=seed, fraction=fraction)
    clients, units = {}, {}
    for client in dealt.clients:
        (x, y), test = client.train.take(), client.test.take()
        seen = views_of(x, count)
        clients[client.name] = (seen.flatten(0, 1), y.repeat_interleave(count), *test)
        tested = [f"test {i}" for i in range(len(test[1]))]
        units[client.name] = [f"image {i}" for i in range(len(y)) for _ in range(count)] + tested
    return fedfdp.Federation.from_clients(clients, classes=10, units=units, unit_name="image")


def trained(data: fedfdp.Federation, model: str, lr: float, seed: int, rounds: int = ROUNDS) -> dict:
    """The summary of one run."""
    torch.manual_seed(seed)
    return fedfdp.train(
        MODELS[model](input_shape=data.input_shape, outputs=10),
        data,
        algorithm=fedfdp.FedAvg(lr=lr),
        privacy=fedfdp.DPSGD(epsilon=EPSILON, delta=1e-5, q=0.1, clip=0.1),
        rounds=rounds,
        server=fedfdp.ServerOptimizer(average=0.95),
        eval_every=rounds,
        seed=seed,
        threads=1,
    ).summary


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--models", default="small-cnn")
    options.add_argument("--views", default="1,2,6")
    options.add_argument("--rates", default="8,16")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    for model in given.models.split(","):
        for count in map(int, given.views.split(",")):
            data = holders(count, given.seed)
            for lr in map(float, given.rates.split(",")):
                found = trained(data, model, lr, given.seed)
                print(f"| {model} | {count} | {lr:g} | {found['accuracy']:.2%} | {found['epsilon']:.3f} |", flush=True)


if __name__ == "__main__":
    main()
