"""Parameters that reach the records by a detour: broadcast, looked up, turned, cast, tied, computed from others."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations

from fedfdp.privacy.clipping import clipped_sum
from fedfdp.privacy.clipping.contributions import STORE
from fedfdp.privacy.clipping.groups import Groups, Sums
from fedfdp.privacy.clipping.plan import path_of
from fedfdp.privacy.clipping.products import Factors, Product
from per_record import CLASSES, assert_parity, by_autograd, cross_entropy

T, D = 5, 8
Use = Callable[["Detour", Tensor], Tensor]


class Detour(nn.Module):
    """(B, T, D) through one use of a few parameters, and a linear head on what becomes of it."""

    def __init__(self, use: Use) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.use = use
        self.token, self.places = nn.Parameter(torch.randn(1, 1, D)), nn.Parameter(torch.randn(1, T, D))
        self.matrix, self.gain = nn.Parameter(torch.randn(D, D) / 3), nn.Parameter(torch.rand(D))
        self.table, self.bias = nn.Embedding(2 * T, D), nn.Embedding(3, 2)
        self.head = nn.Linear(D, CLASSES)
        self.register_buffer("near", (torch.arange(T)[:, None] - torch.arange(T)).abs().clamp(max=2))

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.use(self, x)).mean(1))


def _scores(m: Detour, x: Tensor) -> Tensor:
    """Attention in two heads, with a learned bias by distance that all records share."""
    heads = x.view(len(x), T, 2, D // 2).transpose(1, 2)
    bias = m.bias(m.near).permute(2, 0, 1).unsqueeze(0)
    scores = heads @ heads.mT + bias
    return (scores.softmax(-1) @ heads).transpose(1, 2).reshape(x.shape)


def _biased(m: Detour, x: Tensor) -> Tensor:
    heads = x.view(len(x), T, 2, D // 2).transpose(1, 2)
    bias = m.bias(m.near).permute(2, 0, 1).unsqueeze(0)
    return functional.scaled_dot_product_attention(heads, heads, heads, bias).transpose(1, 2).reshape(x.shape)


def _in_windows(m: Detour, x: Tensor) -> Tensor:
    """Windows folded into the batch, as in Swin: a record is several rows of the first dimension."""
    windows = x.view(len(x), T, 2, D // 2).transpose(1, 2).reshape(-1, T, D // 2)
    bias = m.bias(m.near).sum(-1)
    return ((windows @ windows.mT + bias).softmax(-1) @ windows).reshape(len(x), 2, T, D // 2).sum(1).repeat(1, 1, 2)


def _numbers(x: Tensor) -> Tensor:
    return torch.arange(3).unsqueeze(0).expand(len(x), -1)


DETOURS: dict[str, Use] = {
    "class token": lambda m, x: torch.cat([m.token.expand(len(x), -1, -1), x], 1),
    "class token, repeated": lambda m, x: torch.cat([m.token.repeat(len(x), 1, 1), x], 1),
    "positions": lambda m, x: x + m.places,
    "positions in place": lambda m, x: x.clone().add_(m.places),
    "positions subtracted": lambda m, x: m.places - x,
    "positions by number": lambda m, x: x + m.table(torch.arange(T)[None]),
    "the same position for all": lambda m, x: x + m.table(torch.zeros(1, T, dtype=torch.int64)),
    "types made for the batch": lambda m, x: x + m.table(torch.zeros(x.shape[:2], dtype=torch.int64)),
    "prompt": lambda m, x: torch.cat([m.table(_numbers(x)[:1]).repeat(len(x), 1, 1), x], 1),
    "bias by distance": _scores,
    "bias as a mask": _biased,
    "bias in windows": _in_windows,
    "transposed": lambda m, x: functional.linear(x, m.matrix.t()),
    "transposed, and as it is": lambda m, x: functional.linear(x, m.matrix.T) + functional.linear(x, m.matrix),
    "product": lambda m, x: x @ m.matrix,
    "addmm": lambda m, x: torch.addmm(m.gain, x.reshape(-1, D), m.matrix).view(x.shape),
    "cast": lambda m, x: functional.linear(x, m.matrix.double().float()),
    "one plus the gain": lambda m, x: x * (1.0 + m.gain.float()),
    "gain reshaped": lambda m, x: (x.mT * m.gain.reshape(-1, 1)).mT,
    "computed from others": lambda m, x: functional.linear(x, m.matrix * (m.gain / m.matrix.norm(dim=1))[:, None]),
    "chosen": lambda m, x: torch.where(x > 0, x, m.token),
    "records in a matrix of weights": lambda m, x: m.places.mT @ x @ torch.eye(D),
    "einsum": lambda m, x: torch.einsum("btd,de->bte", x, m.matrix),
    "by index": lambda m, x: x + m.table.weight[(x[..., 0] > 0).long()],
    "used twice": lambda m, x: functional.linear(torch.tanh(functional.linear(x, m.matrix)), m.matrix),
}  # fmt: skip


@pytest.mark.parametrize("name", DETOURS)
def test_a_detour_gives_what_autograd_gives(name):
    x = torch.randn(6, T, D, generator=torch.Generator().manual_seed(1))
    assert_parity(Detour(DETOURS[name]), x, "rules", by_autograd)


def test_a_weight_that_is_computed_from_a_direction_and_a_length():
    torch.manual_seed(0)
    layer = parametrizations.weight_norm(nn.Linear(D, D))
    model = nn.Sequential(layer, nn.Tanh(), nn.Flatten(), nn.Linear(T * D, CLASSES))
    assert_parity(model, torch.randn(6, T, D), "rules", by_autograd)


class Tied(nn.Module):
    """A language model whose words are named by the table that they are looked up in."""

    def __init__(self, words: int, width: int, *, turned: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.inner, self.turned = nn.Embedding(words, width), nn.Linear(width, width), turned

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.inner(self.table(x)))
        words = h @ self.table.weight.t() if self.turned else functional.linear(h, self.table.weight)
        return words.mean(1)[:, :CLASSES]


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("words", [700, 3000])  # few enough for inner products, or not
def test_a_tied_table_is_never_held_for_each_record(words, turned):
    x = torch.randint(0, 50, (6, 40), generator=torch.Generator().manual_seed(1))
    model = Tied(words, 128, turned=turned)
    assert words * 128 > STORE
    assert_parity(model, x, "rules", by_autograd)


@pytest.mark.parametrize("rows", [3, 400])
def test_a_product_measures_and_adds_up_what_its_factors_say(rows):
    chance = torch.Generator().manual_seed(0)
    height, width, records = 300, 250, 4
    dense = Factors(*(torch.randn(records, rows, n, generator=chance) for n in (height, width)), height, width)
    picked = Factors(
        torch.randint(height, (records, 7), generator=chance),
        torch.randn(records, 7, width, generator=chance),
        height,
        width,
    )
    right = dense.left.double().mT @ dense.right.double()
    for record in range(records):
        right[record].index_add_(0, picked.left[record], picked.right[record].double())
    found = Product("w", [dense, picked])
    norms, _ = found.norms()
    torch.testing.assert_close(norms, right.flatten(1).norm(dim=1), rtol=1e-5, atol=0)
    sums, c = Sums({"w": torch.zeros(height, width)}, 2), torch.tensor([0.5, 2.0, -1.0, 0.25])
    found.add_to(sums, c, Groups.of([1, 3]))
    weighted = c.double()[:, None, None] * right
    expected = torch.stack([weighted[:1].sum(0), weighted[1:].sum(0)])
    torch.testing.assert_close(sums.totals["w"].double(), expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}, {"bias": False}])
def test_recurrent_layers(kind, options):
    class Reader(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body = kind(D, 6, **options)
            layers = self.body.num_layers * (2 if self.body.bidirectional else 1)
            self.start = nn.Parameter(torch.randn(layers, 1, 6))
            self.head = nn.Linear(6 * layers + 6 * (2 if self.body.bidirectional else 1), CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            start = self.start.expand(-1, len(x), -1).contiguous()
            state = (start, torch.zeros_like(start)) if kind is nn.LSTM else start
            output, last = self.body(x.transpose(0, 1), state)
            last = last[0] if kind is nn.LSTM else last
            return self.head(torch.cat([output.mean(0), last.transpose(0, 1).flatten(1)], 1))

    assert_parity(Reader(), torch.randn(5, T, D), "rules", by_autograd)


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_a_plain_cell_place_by_place(activation):
    class Cells(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.body, self.head = nn.RNNCell(D, D, nonlinearity=activation), nn.Linear(D, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            h = torch.zeros_like(x[:, 0])
            for place in range(T):
                h = self.body(x[:, place], h)
            return self.head(h)

    assert_parity(Cells(), torch.randn(5, T, D), "rules", by_autograd)


COUNTED: dict[str, Use] = {
    "how many there are": lambda m, x: x * torch.ones(len(x)).sum() * m.gain,
    "the largest of as many draws": lambda m, x: x * torch.rand(len(x)).max() * m.gain,
    "the mean token of as many": lambda m, x: x * (m.token.expand(len(x), -1, -1) * len(x)).mean(0),
}


@pytest.mark.parametrize("name", COUNTED)
def test_what_depends_on_the_number_of_records_is_not_taken_for_a_constant(name):
    """Each record's gradient would be scaled by how many others there are: one more would move all of them."""
    model, x, y = Detour(COUNTED[name]), torch.randn(6, T, D), torch.randint(CLASSES, (6,))
    torch.manual_seed(3)
    whole = clipped_sum(model, cross_entropy, x, y, clip=1e6).norms
    torch.manual_seed(3)
    fewer = clipped_sum(model, cross_entropy, x[:2], y[:2], clip=1e6).norms
    assert path_of(model)[0] != "rules"
    if "draws" not in name:
        torch.testing.assert_close(whole[:2], fewer)


def test_a_write_of_records_into_what_they_share_is_seen():
    class Marked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(D, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            shared = torch.zeros(x.shape[:2])
            shared[:, 0].copy_(x[:, 0, 0])
            return self.head(x.mean(1)) * (2.0 if bool((shared > 1).any()) else 1.0)

    model, x, y = Marked(), torch.zeros(6, T, D), torch.zeros(6, dtype=torch.int64)
    x[:, 1] = 1
    before = clipped_sum(model, cross_entropy, x, y, clip=1e6).norms
    x[5, 0, 0] = 9.0
    after = clipped_sum(model, cross_entropy, x, y, clip=1e6).norms
    torch.testing.assert_close(before[:5], after[:5])


def test_a_chunk_of_one_record():
    model, x, y = Detour(DETOURS["class token"]), torch.randn(5, T, D), torch.randint(CLASSES, (5,))
    whole = clipped_sum(model, cross_entropy, x, y, clip=0.5)
    for chunk in (1, 2, 4):
        torch.testing.assert_close(clipped_sum(model, cross_entropy, x, y, clip=0.5, chunk=chunk).flat, whole.flat)
