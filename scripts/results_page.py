"""Moves the sections that `fedfdp reproduce … --save results` wrote into docs/results*.md, each between its two marks.

A mark is `<!-- NAME -->` … `<!-- end NAME -->`. NAME.md in results/ takes the place of what is between them, NAME.png
moves to docs/images/; the JSON stays. A section without such a file, and what is outside the marks, stay as they are.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs").glob("results*.md"))
RESULTS, IMAGES = ROOT / "results", ROOT / "docs" / "images"


def refreshed(text: str) -> str:
    """The page with every section that was saved anew in its place."""

    def put(match: re.Match[str]) -> str:
        name = match[1]
        page, picture = RESULTS / f"{name}.md", RESULTS / f"{name}.png"
        if not page.is_file():
            return match[0]
        if picture.is_file():
            picture.replace(IMAGES / picture.name)
        figure = f"\n![{name}](images/{name}.png)\n" if (IMAGES / picture.name).is_file() else ""
        section = page.read_text(encoding="utf-8") + figure
        page.unlink()
        return f"<!-- {name} -->\n\n{section}\n<!-- end {name} -->"

    return re.sub(r"<!-- (?!end)(\S+) -->.*?<!-- end \1 -->", put, text, flags=re.DOTALL)


if __name__ == "__main__":
    for page in PAGES:
        before = page.read_text(encoding="utf-8")
        after = refreshed(before)
        page.write_text(after, encoding="utf-8")
        print(f"{page.relative_to(ROOT)}: {'changed' if after != before else 'as it was'}", file=sys.stderr)
