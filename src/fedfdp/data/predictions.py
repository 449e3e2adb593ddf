"""What a trained model's inputs and outputs mean in terms of the files it was trained on. Reads no label."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from fedfdp.core.errors import DataError
from fedfdp.data.files import own
from fedfdp.data.files.own import Say
from fedfdp.data.files.paths import ARRAYS
from fedfdp.data.files.pieces import target_range
from fedfdp.data.named.catalog import find, named
from fedfdp.data.schema import Facts, Range, class_names


@dataclass(frozen=True)
class Meaning:
    """Names of the classes in the order of the outputs, or the range that a regression's target was scaled from."""

    classes: tuple[str, ...] = ()
    range: Range | None = None

    def of(self, outputs: Tensor) -> list[str] | list[float]:
        """One answer a record: the likeliest class's name, or a number in the label's own units."""
        if self.classes:
            return [self.classes[best] for best in outputs.argmax(-1).tolist()]
        values = outputs.double().reshape(len(outputs), -1)[:, 0]
        if self.range is not None:
            low, high = self.range
            values = (values + 1) / 2 * (high - low) + low
        return [float(value) for value in values.tolist()]


def meaning(facts: Facts, source: str) -> Meaning:
    """Of a run's outputs, from the [data] section it is stored with."""
    if named(source):
        return Meaning(tuple(map(str, range(find(source).classes))))
    return Meaning(class_names(facts), target_range(facts))


def read_inputs(facts: Facts, source: str, path: str | Path, *, progress: Say | None = None) -> Tensor:
    """The inputs in a file, or in a folder of images, laid out and scaled as those of `data.source` were in training.

    Columns for label, holder and test may be there or not; all others must be those of the training files. Of a
    dataset by name, the records are images: an archive of them, or a folder.
    """
    path = Path(path)
    if named(source):
        known = find(source)
        if path.is_file() and path.suffix.lower() not in ARRAYS:
            shape = "×".join(map(str, known.shape))
            raise DataError(
                f"{path}: this run was trained on {known.name}, images of {shape}; give an .npz file with an array x "
                f"of such images, values 0 to {known.brightest}, or a folder of image files"
            )
        facts = replace(facts, range=(0.0, float(known.brightest)))
    return own.read_inputs(facts, path, progress=progress)
