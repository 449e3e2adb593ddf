"""Puts the sections that `fedfdp reproduce … --save results` wrote into docs/results.md, each between its two marks.

A mark is `<!-- NAME -->` … `<!-- end NAME -->` with NAME.md in results/; a figure moves to docs/images/.
What is outside the marks stays as it is.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, RESULTS, IMAGES = ROOT / "docs" / "results.md", ROOT / "results", ROOT / "docs" / "images"


def section(name: str) -> str:
    """The saved page with its figure, or a word that it is missing."""
    page, picture = RESULTS / f"{name}.md", RESULTS / f"{name}.png"
    if not page.is_file():
        return "*Not measured yet.*\n"
    if picture.is_file():
        picture.replace(IMAGES / picture.name)
    figure = f"\n![{name}](images/{name}.png)\n" if (IMAGES / picture.name).is_file() else ""
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
