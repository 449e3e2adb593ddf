"""Segmentation over three holders, private: which pixels of a noisy picture belong to a bright square.

python examples/segmentation.py
"""

import torch
from torch import nn

import fedfdp


def pictures(seed, count=300, size=12):
    chance = torch.Generator().manual_seed(seed)
    masks = torch.zeros(count, size, size, dtype=torch.int64)
    for mask in masks:
        top, left = torch.randint(0, size - 6, (2,), generator=chance).tolist()
        mask[top : top + 6, left : left + 6] = 1
    return masks[:, None] + 0.7 * torch.randn(count, 1, size, size, generator=chance), masks


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.Tanh(), nn.Conv2d(8, 2, 3, padding=1))
holders = {name: pictures(seed) for seed, name in enumerate(["north", "south", "west"])}
federation = fedfdp.Federation.from_clients(holders, task="segmentation", classes=2)
private = fedfdp.DPSGD(epsilon=4.0)
result = fedfdp.train(net, federation, privacy=private, rounds=60, metric="iou", out="runs/squares")
print({name: round(result.summary[name], 3) for name in ("iou", "accuracy", "epsilon", "psi")})
