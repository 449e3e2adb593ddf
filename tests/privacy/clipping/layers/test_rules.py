"""Every layer rule against gradients taken from torch itself, record by record."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from per_record import CLASSES, assert_parity, by_autograd, head


@settings(max_examples=15, deadline=None)
@given(st.data())
def test_linear_with_any_leading_dimensions(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    shape = data.draw(st.lists(st.integers(1, 4), min_size=0, max_size=2))
    bias = data.draw(st.booleans())
    x = torch.randn(6, *shape, 7)
    assert_parity(head(nn.Sequential(nn.Linear(7, 9, bias=bias), nn.Tanh(), nn.Linear(9, 4, bias=bias)), x), x, "rules")


def test_wide_linear_over_a_sequence_without_forming_the_gradient():
    x = torch.randn(6, 3, 200)
    assert 200 * 400 > 2**16
    assert_parity(head(nn.Sequential(nn.Linear(200, 400), nn.Tanh()), x), x, "rules")


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_convolutions_of_any_shape(data):
    torch.manual_seed(data.draw(st.integers(0, 99)))
    dims, groups = data.draw(st.sampled_from([1, 2, 2, 3])), data.draw(st.sampled_from([1, 2, 4]))
    small = [data.draw(st.integers(1, 3)) for _ in range(3 * dims)]
    kernel, stride, dilation = small[:dims], small[dims : 2 * dims], small[2 * dims :]
    padding = data.draw(st.sampled_from(["valid", "same", 0, 1, 2]))
    if padding == "same":
        stride = [1] * dims
    mode = data.draw(st.sampled_from(["zeros", "circular", "replicate"] + ["reflect"] * (dims < 3)))
    layer = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dims - 1](
        4, 8, tuple(kernel), tuple(stride), padding, tuple(dilation), groups, data.draw(st.booleans()), mode
    )
    x = torch.randn(4, 4, *[data.draw(st.integers(7, 9)) for _ in range(dims)])
    assert_parity(head(layer, x), x, "rules", by_autograd)


def test_strided_convolution_stack_with_inplace_activations():
    x = torch.randn(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    body = nn.Sequential(
        *(nn.Conv2d(1, 16, 8, 2, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2, 1)),
        *(nn.Conv2d(16, 32, 4, 2), nn.ReLU(inplace=True), nn.MaxPool2d(2, 1)),
    )
    assert_parity(head(body, x), x, "rules")


@pytest.mark.parametrize("channels_last", [False, True])
def test_channels_last_images(channels_last):
    x = torch.randn(5, 3, 8, 8)
    x = x.to(memory_format=torch.channels_last) if channels_last else x
    assert_parity(head(nn.Conv2d(3, 4, 3, padding=1), x), x, "rules")


@pytest.mark.parametrize("dims", [1, 2])
def test_wide_convolution_without_forming_the_gradient(dims, monkeypatch):
    monkeypatch.setattr("fedfdp.privacy.clipping.layers.patches.COPY", 2**12)  # several copies for six records
    x = torch.randn(6, 64, *[5] * dims)
    layer = (nn.Conv1d, nn.Conv2d)[dims - 1](64, 512 // dims**2, 3, padding=1, stride=2)
    assert layer.weight.numel() > 2**16
    assert_parity(head(nn.Sequential(layer, nn.Tanh()), x), x, "rules")


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(6,), (6, 4), (6, 4, 4)])
def test_group_norm(shape, affine):
    x = torch.randn(5, *shape)
    assert_parity(head(nn.Sequential(nn.GroupNorm(3, 6, affine=affine), nn.Tanh()), x), x, "rules")


@pytest.mark.parametrize("normalized", [(6,), (4, 6)])
@pytest.mark.parametrize("bias", [True, False])
def test_layer_norm(normalized, bias):
    x = torch.randn(5, 4, 6)
    assert_parity(head(nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(normalized, bias=bias), nn.Tanh()), x), x, "rules")


@pytest.mark.parametrize("padding", [None, 0, -1])
def test_embedding_with_repeated_tokens(padding):
    x = torch.randint(0, 4, (6, 9), generator=torch.Generator().manual_seed(0))
    assert_parity(head(nn.Sequential(nn.Embedding(4, 3, padding_idx=padding), nn.Tanh()), x), x, "rules")


class Broadcast(nn.Module):
    """Parameters of several shapes added to and multiplied with the data, on either side."""

    def __init__(self) -> None:
        super().__init__()
        self.places, self.gain = nn.Parameter(torch.randn(1, 3, 4)), nn.Parameter(torch.rand(4))
        self.offset, self.column = nn.Parameter(torch.randn(1)), nn.Parameter(torch.rand(3, 1))
        self.out = nn.Linear(12, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.gain * (x + self.places) + self.offset)
        return self.out((self.column + torch.add(h, self.gain)).mul(self.column).flatten(1))


def test_parameters_added_to_and_multiplied_with_data():
    assert_parity(Broadcast(), torch.randn(5, 3, 4), "rules")
