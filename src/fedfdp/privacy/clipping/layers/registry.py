"""Every layer rule, by the functions that it takes: a new one is a file in this folder and a line here.

The line also says when a trial on random numbers proves that such a call keeps records apart (proof/conditions.py).
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fedfdp.privacy.clipping.layers.broadcast import Gain, Shift
from fedfdp.privacy.clipping.layers.convolution import Convolution
from fedfdp.privacy.clipping.layers.embedding import Embedding
from fedfdp.privacy.clipping.layers.linear import Linear
from fedfdp.privacy.clipping.layers.normalisation import GroupNorm, LayerNorm
from fedfdp.privacy.clipping.layers.rule import Rule
from fedfdp.privacy.clipping.proof.conditions import Condition, always, records_first

REGISTERED: tuple[tuple[Rule[Any], Condition], ...] = (
    (Linear(), always),
    (Convolution(), records_first),
    (Embedding(), always),
    (LayerNorm(), always),
    (GroupNorm(), always),
    (Shift(), always),
    (Gain(), always),
)
RULES: dict[Callable[..., Tensor], Rule[Any]] = {f: rule for rule, _ in REGISTERED for f in rule.functions}

# What to write instead of a function on parameters that has no rule, by its name. A function that gets one leaves here.
INSTEAD = {
    "prelu": "replace it by nn.LeakyReLU()",
    "rms_norm": "replace it by nn.LayerNorm",
    "bilinear": "replace it by nn.Linear of the outer product",
    "matmul": "use nn.Linear, or functional.linear, instead of @",
}
