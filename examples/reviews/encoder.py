"""A sentence encoder that was learnt from public texts (Universal Sentence Encoder Lite), with a new last layer."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.beside = nn.LayerNorm(width, 1e-6), nn.Linear(width, 512) if width < 512 else nn.Identity()
        self.query, self.key, self.value, self.out = (nn.Linear(width, n) for n in (width, width, width, 512))
        self.wide = nn.Sequential(nn.LayerNorm(512, 1e-6), nn.Linear(512, 1536), nn.ReLU(), nn.Linear(1536, 512))

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        seen, parts = self.before(x), (self.query, self.key, self.value)
        query, key, value = (part(seen).unflatten(2, (4, -1)).transpose(1, 2) for part in parts)
        near = (query @ key.transpose(2, 3) / query.shape[3] ** 0.5 + hidden).softmax(3)
        x = self.beside(x) + self.out((near @ value).transpose(1, 2).flatten(2))
        return x + self.wide(x)


class Classifier(nn.Module):
    remark = "public pretraining"  # said beside every number

    def __init__(self) -> None:
        super().__init__()
        self.words, self.last = nn.Embedding(8002, 256), nn.Linear(512, 512)
        self.layers = nn.ModuleList([Layer(256), Layer(512)])
        self.load_state_dict(load_file(Path(__file__).parent / "model" / "encoder.safetensors"))
        self.head = nn.Linear(512, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        angle = torch.arange(input_ids.shape[1])[:, None] * 1e4 ** (-torch.arange(128) / 127)
        x, mask = 2 * self.words(input_ids) + torch.cat([angle.sin(), angle.cos()], 1), attention_mask.float()
        for layer in self.layers:
            x = layer(x, (mask[:, None, None] - 1) * 1e9)
        x = self.last((x * mask[..., None]).sum(1) / mask.sum(1, keepdim=True))
        return self.head(16 * nn.functional.normalize(x.tanh()))
