"""The sections of the report. A new one is NAME.py with a `SECTION`, NAME.js that draws it, and its name below."""

from importlib import import_module

from fedfdp.report.section import Section

# In the order of the page.
NAMES = (
    "comparison",
    "summary",
    "classes",
    "groups",
    "clients",
    "joining",
    "rounds",
    "data",
    "privacy",
    "settings",
)
SECTIONS: list[Section] = [import_module(f"fedfdp.report.sections.{name}").SECTION for name in NAMES]
