"""Whether joining pays: each holder with the run's model and with one that it trained by itself at the same ε."""

from fedfdp.report.section import Json, Section, StoredRun


def _of_run(run: StoredRun) -> Json:
    return {"joining": run.folder.joining()}


SECTION = Section("joining", "Does joining pay?", _of_run)
