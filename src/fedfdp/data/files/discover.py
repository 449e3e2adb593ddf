"""Which files and image folders there are at a path, who holds each, and whether the settings fit them."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from fedfdp.core.errors import DataError, SettingError, nearest
from fedfdp.data.columns import Column, Numeric, words_in
from fedfdp.data.files.arrays import Archive, ArraySource
from fedfdp.data.files.images import ImageSource, images_in
from fedfdp.data.files.paths import ARRAYS, KINDS, NAMED_TABLES, TABLES, entries, existing, kind_of, stem_of
from fedfdp.data.files.source import Source, check_label
from fedfdp.data.files.tables import TableSource, open_table
from fedfdp.data.files.texts import TextSource, texts_in
from fedfdp.data.schema import Facts, class_names, columns_of, favourable_of, group_of
from fedfdp.models.tasks import find_task

TABLES_ONLY = ("missing", "decimal", "unlabelled", "unchecked", "group")


def sources_of(facts: Facts, path: Path, *, labelled: bool) -> list[tuple[str | None, Source]]:
    """Each source with its holder's name; None if a column names the holders, or nothing does."""
    if path.is_file():
        return [(None, _file(facts, path, labelled))]
    inside = entries(path, path)
    files = [entry for entry in inside if entry.is_file() and kind_of(entry) in TABLES + ARRAYS]
    folders = [entry for entry in inside if entry.is_dir()]
    if files:
        if facts.holder is not None:
            raise SettingError("data.holder", facts.holder, f"{path} has a file for each holder", "leave it out")
        if len({stem_of(file) for file in files}) < len(files):
            raise DataError(f"{path}: two files of the same name; a file's name is its holder's, so they must differ")
        return [(stem_of(file), _file(facts, existing(file), labelled)) for file in files]
    kind = TextSource if facts.words is not None else ImageSource
    inner = texts_in if facts.words is not None else images_in
    if not labelled and (loose := inner(path, path)):
        return [(None, kind(path, (("", tuple(loose)),), facts, labelled))]
    if any(inner(folder, path) for folder in folders) and facts.task != "language":
        return [(None, _sorted(facts, path, path, labelled))]
    found = [(folder.name, _folder(facts, folder, path, labelled)) for folder in folders]
    if not found:
        raise DataError(f"{path}: holds nothing that can be read; put a file or a folder for each holder there")
    return list(found)


def _file(facts: Facts, path: Path, labelled: bool) -> Source:
    kind = kind_of(path)
    if kind in ARRAYS:
        _check_used(facts, path, "an archive", ("columns", "ignore", *TABLES_ONLY), labelled)
        return ArraySource(path, Archive(path), facts, labelled)
    if kind not in NAMED_TABLES:
        raise DataError(f"{path}: files of kind {kind or 'none'!r} are not read; give {KINDS}")
    table = open_table(path, facts)
    _check_used(facts, path, "a table", ("range", "inputs"), labelled)
    if labelled:
        _check_named(facts, path, table.names)
    columns = [
        _with_estimate(facts, column) for column in columns_of(facts, table.names, str(path), trained=not labelled)
    ]
    return TableSource(path, table, facts, tuple(columns), labelled)


def _check_named(facts: Facts, path: Path, names: Sequence[str]) -> None:
    """Checks that the columns for label, holder, test and unit are there."""
    if facts.label is None and facts.task == "language" and facts.words is not None:
        return  # what is told is the text itself
    if facts.task is not None and not find_task(facts.task).usual:
        allowed = f"{path.name} is a table, with one label in a row"
        raise SettingError("data.task", facts.task, allowed, "give an .npz file, or leave it out")
    if facts.label is None:
        raise SettingError("data.label", None, f"which column of {path.name} is to be predicted?", "set it in [data]")
    for setting, name in ((s, getattr(facts, s)) for s in ("holder", "label", "test", "unit", "group")):
        if name is not None and name not in names:
            raise DataError(f"{path}: no column {name!r} as data.{setting} says; {nearest(name, names)}")
    check_label(facts, facts.label)
    if group_of(facts) is not None:
        favourable_of(facts, class_names(facts))


def _with_estimate(facts: Facts, column: Column) -> Column:
    """The column; if its range is private and was estimated already, with that range."""
    if isinstance(column, Numeric) and column.range is None and facts.estimate is not None:
        return replace(column, range=facts.estimate.found.get(column.name))
    return column


def _folder(facts: Facts, folder: Path, top: Path, labelled: bool) -> Source:
    """A holder's folder: it has one file, or one folder of images or texts per class."""
    files = [entry for entry in entries(folder, top) if entry.is_file() and kind_of(entry) in TABLES + ARRAYS]
    if len(files) > 1:
        raise DataError(f"{folder}: {len(files)} files, {files[0].name} and others; a holder's folder has one")
    return _file(facts, existing(files[0]), labelled) if files else _sorted(facts, folder, top, labelled)


def _sorted(facts: Facts, folder: Path, top: Path, labelled: bool) -> Source:
    inner, what = (images_in, "images") if facts.words is None else (texts_in, "texts")
    groups = [(entry.name, tuple(inner(entry, top))) for entry in entries(folder, top) if entry.is_dir()]
    if what == "texts" and facts.task == "language":
        groups.append(("", tuple(texts_in(folder, top))))
    if not any(paths for _, paths in groups):
        raise DataError(f"{folder}: an empty holder: no file and no folder of {what} in it; fill it or remove it")
    useless = ("holder", "label", "test", "ignore", "range", "inputs", *TABLES_ONLY)
    if what == "images":
        _check_used(facts, folder, what, (*useless, "columns", "task"), labelled)
        return ImageSource(folder, tuple(groups), facts, labelled)
    _check_used(facts, folder, what, useless, labelled)
    for name, spec in (facts.columns or {}).items():
        if words_in(name, spec) is None:
            allowed = f"{folder.name} is texts, which have no columns"
            raise SettingError(f"data.columns.{name}", spec, allowed, "leave it out")
    if facts.task not in (None, "language"):
        allowed = f"{folder.name} is texts: of one class each, or language"
        raise SettingError("data.task", facts.task, allowed, "leave it out")
    return TextSource(folder, tuple(groups), facts, labelled)


def _check_used(facts: Facts, path: Path, kind: str, useless: Sequence[str], labelled: bool) -> None:
    """Raises, where a run or a node starts, if a setting is given that this kind of file would ignore."""
    for name in useless if labelled else ():
        if (given := getattr(facts, name)) not in (None, {}, ()):
            raise SettingError(f"data.{name}", given, f"{path.name} is {kind}, which has no use for it", "leave it out")
