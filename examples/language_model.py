"""A small language model over three holders, private: each record is a sequence of letters, and perplexity is measured.

python examples/language_model.py
"""

import torch
from torch import nn

import fedfdp

WORDS = ["abba", "cede", "face", "bead", "deaf", "cafe", "fade", "babe"]
LETTERS = " abcdef"


class Letters(nn.Module):
    """Tells the next letter from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(len(LETTERS), 16), nn.Linear(48, len(LETTERS))

    def forward(self, ids):
        """Scores for the letter after each one, from it and the two before."""
        seen = nn.functional.pad(self.table(ids), (0, 0, 2, 0))
        return self.last(torch.cat([seen[:, 2:], seen[:, 1:-1], seen[:, :-2]], -1))


def texts(seed, count=600, length=15):
    chance = torch.Generator().manual_seed(seed)
    lines = [" ".join(WORDS[i] for i in torch.randint(8, (length // 5 + 1,), generator=chance)) for _ in range(count)]
    return torch.tensor([[LETTERS.index(letter) for letter in line[:length]] for line in lines])


holders = {name: (ids := texts(seed), ids) for seed, name in enumerate(["north", "south", "west"])}
federation = fedfdp.Federation.from_clients(holders, task="language", classes=len(LETTERS))
result = fedfdp.train(Letters(), federation, privacy=fedfdp.DPSGD(epsilon=4.0), out="runs/letters", rounds=60)
print({name: round(result.summary[name], 3) for name in ("perplexity", "accuracy", "epsilon", "psi")})
