"""What each client holds: drawn from what the section of the clients has read."""

from fedfdp.report.section import Section

SECTION = Section("data", "Who holds what")
