"""Every layer rule, by the functions that it takes: a new one is a file in this folder and a line here.

The line also says when a trial on random numbers proves that such a call keeps records apart (proof/conditions.py).
A function without a rule is not lost: kept.py has two ways that fit any function, and in_steps.py takes some apart.
"""

from collections.abc import Callable
from typing import Any

from torch import Tensor

from fedfdp.privacy.clipping.layers.convolution import Convolution, Transposed
from fedfdp.privacy.clipping.layers.embedding import Embedding
from fedfdp.privacy.clipping.layers.linear import Addmm, Linear, Matmul
from fedfdp.privacy.clipping.layers.normalisation import GroupNorm, LayerNorm
from fedfdp.privacy.clipping.layers.recurrent import Cell, Recurrent
from fedfdp.privacy.clipping.layers.rule import Rule
from fedfdp.privacy.clipping.proof.conditions import Condition, always, records_first

REGISTERED: tuple[tuple[Rule[Any], Condition], ...] = (
    (Linear(), always),
    (Matmul(), always),
    (Addmm(), always),
    (Convolution(), records_first),
    (Transposed(), records_first),
    (Embedding(), always),
    (LayerNorm(), always),
    (Recurrent(), always),
    (Cell(), always),
    (GroupNorm(), always),
)
RULES: dict[Callable[..., Tensor], Rule[Any]] = {f: rule for rule, _ in REGISTERED for f in rule.functions}
