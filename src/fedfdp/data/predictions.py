"""What a trained model takes and gives, in terms of the files it was trained on. Reads no label."""

from dataclasses import dataclass, replace
from pathlib import Path

from torch import Tensor

from fedfdp.core.errors import DataError, RunError
from fedfdp.core.trees import Inputs
from fedfdp.data.columns import Range
from fedfdp.data.files import read
from fedfdp.data.files.paths import ARRAYS
from fedfdp.data.files.read import Say
from fedfdp.data.files.source import target_range
from fedfdp.data.named.catalog import find, named
from fedfdp.data.named.entry import Table
from fedfdp.data.schema import Facts, class_names


@dataclass(frozen=True)
class Meaning:
    """What a model's outputs mean."""

    classes: tuple[str, ...] = ()  # their names, in the order of the outputs
    range: Range | None = None  # for regression: the range that the target was scaled from

    def of(self, outputs: Tensor) -> list[str] | list[float]:
        """One answer per record: the name of the likeliest class, or a number in the label's own units and range."""
        if self.classes:
            return [self.classes[best] for best in outputs.argmax(-1).tolist()]
        values = outputs.double().reshape(len(outputs), -1)[:, 0]
        if not bool(values.isfinite().all()):
            raise RunError("the model gives no number for some records: its run diverged; train it again")
        if self.range is not None:
            low, high = self.range
            values = ((values + 1) / 2 * (high - low) + low).clamp(low, high)
        return [float(value) for value in values.tolist()]


def meaning(facts: Facts, source: str) -> Meaning:
    """What a run's outputs mean, from the [data] section that the run keeps."""
    if named(source):
        return Meaning(find(source).labels)
    return Meaning(class_names(facts), target_range(facts))


def read_inputs(facts: Facts, source: str, path: str | Path, *, progress: Say | None = None) -> Inputs:
    """The inputs in a file, or in a folder of images, laid out and scaled as those of `data.source` in training.

    Columns for label, holder and test may be there or not; all others must be those of the training files. For a run
    on images by name, give an archive or a folder of images; on a table by name, a table with its columns.
    """
    path = Path(path)
    if named(source):
        known = find(source)
        if isinstance(known, Table):
            return read.read_inputs(known.read_as(facts), path, progress=progress)
        if path.is_file() and path.suffix.lower() not in ARRAYS:
            shape = "×".join(map(str, known.shape))
            raise DataError(
                f"{path}: this run was trained on {known.name}, images of {shape}; give an .npz file with an array x "
                f"of such images, values 0 to {known.brightest}, or a folder of image files"
            )
        facts = replace(facts, range=(0.0, float(known.brightest)))
    return read.read_inputs(facts, path, progress=progress)
