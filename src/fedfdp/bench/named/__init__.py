"""Named models of other libraries: what `fedfdp bench --what models` measures. A new one is a line in its file."""

from fedfdp.bench.named.adapters import ADAPTERS
from fedfdp.bench.named.base import Named
from fedfdp.bench.named.layers import LAYERS
from fedfdp.bench.named.seen import SEEN
from fedfdp.bench.named.text import TEXT
from fedfdp.bench.named.vision import VISION

__all__ = ["NAMED", "Named"]

NAMED: dict[str, Named] = {f"{m.package}: {m.name}": m for m in (*TEXT, *SEEN, *ADAPTERS, *VISION, *LAYERS)}
