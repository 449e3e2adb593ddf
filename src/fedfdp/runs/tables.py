"""Every evaluation of many runs as one table for other programs: CSV, or Parquet (needs pandas and pyarrow).

Metrics are columns under the names that they have on disk.
"""

import csv
import importlib
from pathlib import Path
from types import ModuleType

from fedfdp.core.errors import RunError, SettingError, nearest
from fedfdp.runs.folder import RunFolder
from fedfdp.runs.tracking import flat, recalls

FORMATS = ("csv", "parquet")


def history_rows(runs: list[RunFolder]) -> list[dict[str, object]]:
    """A row for each evaluation of each run: its folder, the round, every metric and the run's settings."""
    rows = []
    for run in runs:
        settings = {name: value for name, value in flat(run.config()).items() if not isinstance(value, list)}
        for entry in run.metrics():
            numbers = {name: value for name, value in entry.items() if name not in ("clients", "classes", "groups")}
            measured = numbers | recalls(entry)
            rows.append({"run": run.path.name, **measured, **{f"config.{k}": v for k, v in settings.items()}})
    return rows


def write_table(runs: list[RunFolder], file: Path, *, form: str) -> int:
    """Writes every evaluation of these runs; returns the number of rows."""
    if form not in FORMATS:
        raise SettingError("--format", form, nearest(form, FORMATS))
    rows = history_rows(runs)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    try:
        if form == "csv":
            with open(file, "w", newline="", encoding="utf-8") as out:
                writer = csv.DictWriter(out, columns)
                writer.writeheader()
                writer.writerows(rows)
        else:
            _parquet().DataFrame(rows, columns=columns).to_parquet(file)
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror}; give another --out") from None
    return len(rows)


def _parquet() -> ModuleType:
    try:
        importlib.import_module("pyarrow")
        return importlib.import_module("pandas")
    except ImportError as missing:
        need = f"needs {missing.name}, which is not installed"
        raise SettingError("--format", "parquet", need, "pip install 'fedfdp[parquet]', or take csv") from None
