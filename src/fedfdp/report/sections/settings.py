"""Every setting of a run, as text: a seed of 64 bits does not survive as one of JavaScript's numbers."""

from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    return {"settings": {name: "–" if value is None else str(value) for name, value in run.settings.items()}}


SECTION = Section("settings", "Settings", _of_run)
