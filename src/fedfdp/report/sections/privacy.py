"""The privacy statement of a run, as it was written; None where there is none."""

from fedfdp.report.section import Section

SECTION = Section("privacy", "Privacy statement", lambda run: {"privacy": run.privacy})
