"""Named models of other libraries: what `fedfdp bench --what models` measures. A new one is a line in its file."""

from fedfdp.bench.named.adapters import ADAPTERS
from fedfdp.bench.named.base import Named
from fedfdp.bench.named.beyond import BEYOND
from fedfdp.bench.named.layers import LAYERS
from fedfdp.bench.named.seen import SEEN
from fedfdp.bench.named.text import TEXT
from fedfdp.bench.named.vision import VISION

__all__ = ["GROUPS", "NAMED", "Named"]

_LISTED = (*TEXT, *SEEN, *ADAPTERS, *VISION, *LAYERS)
NAMED: dict[str, Named] = {f"{model.package}: {model.name}": model for model in (*_LISTED, *BEYOND)}
GROUPS = {
    "": list(NAMED)[: len(_LISTED)],
    "beyond": list(NAMED)[len(_LISTED) :],
}  # "": what is measured if none is named
