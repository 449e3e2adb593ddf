"""Puts the sections that `fedfdp reproduce … --save results` wrote into docs/results.md, each between its two marks.

A mark is `<!-- NAME -->` … `<!-- end NAME -->` with NAME.md in results/. Text outside the marks is left as it is.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "results.md", ROOT / "results"


def section(name: str) -> str:
    """The saved page with its figure, or a word that it is missing."""
    page = RESULTS / f"{name}.md"
    if not page.is_file():
        return "*Not measured yet.*\n"
    figure = f"\n![{name}](../results/{name}.png)\n" if (RESULTS / f"{name}.png").is_file() else ""
    return page.read_text(encoding="utf-8") + figure


def refreshed(text: str) -> str:
    """The page with every marked section as it is in results/ now."""

    def put(match: re.Match[str]) -> str:
        name = match[1]
        return f"<!-- {name} -->\n\n{section(name)}\n<!-- end {name} -->"

    return re.sub(r"<!-- (?!end)(\S+) -->.*?<!-- end \1 -->", put, text, flags=re.DOTALL)


if __name__ == "__main__":
    before = PAGE.read_text(encoding="utf-8")
    after = refreshed(before)
    PAGE.write_text(after, encoding="utf-8")
    print(f"{PAGE.relative_to(ROOT)}: {'changed' if after != before else 'as it was'}", file=sys.stderr)
