"""A folder with one folder for each class: what images and texts have in common."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fedfdp.core.errors import DataError, SettingError, nearest
from fedfdp.data.files.paths import entries
from fedfdp.data.schema import Facts, class_names


def files_in(folder: Path, top: Path, endings: Sequence[str]) -> list[Path]:
    """The files of a folder whose names end like this, by name."""
    return [path for path in entries(folder, top) if path.suffix.lower() in endings and path.is_file()]


@dataclass(frozen=True, eq=False)
class Sorted:
    """Files sorted by class."""

    path: Path
    groups: tuple[tuple[str, tuple[Path, ...]], ...]  # each class's folder name, and the files in it
    facts: Facts
    labelled: bool  # False: only the inputs are read

    @property
    def first(self) -> Path:
        return next(path for _, paths in self.groups for path in paths)

    def most_rows(self) -> int:
        return sum(len(paths) for _, paths in self.groups)

    def coded(self, what: str) -> Iterator[tuple[int | None, tuple[Path, ...]]]:
        """The files of each class with its number; None where no class is asked for."""
        names, asked = class_names(self.facts), self.labelled and self.facts.task != "language"
        if self.facts.unit is not None:
            allowed = f"{what}s do not say of whom they are"
            raise SettingError("data.unit", self.facts.unit, allowed, "give a table or an .npz with such a column")
        if asked and not names:
            raise SettingError(
                "data.classes", None, f"{what} folders are named by class: list all of them", "in [data]"
            )
        for name, paths in self.groups:
            if asked and name not in names:
                known = nearest(name, names)
                raise DataError(
                    f"{self.path / name}: a folder that is no class; {known}; rename it or set data.classes"
                )
            yield names.index(name) if asked else None, paths
