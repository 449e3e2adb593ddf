"""The report as one HTML page: data, style and script inside it, and a policy under which it can load nothing else.

What users name (clients, runs, folders) reaches the page as JSON; its script makes text of it, never markup.
"""

import base64
import hashlib
import html
import json
from importlib.resources import files
from pathlib import Path

from fedfdp.core.errors import RunError
from fedfdp.report.section import Json
from fedfdp.report.sections import SECTIONS
from fedfdp.runs.folder import RunFolder

# The page's one script: the charting library, what all sections use, the sections, and what puts them together.
LIBRARY = "vendor/plot.js"
SCRIPTS = ("base.js", "metrics.js", "table.js", "chart.js", "figure.js", "lines.js", "by_client.js")
LAST_SCRIPT = "page.js"
PAGE = "report.html"
STYLES = ("page.css", "chart.css", "parts.css")
TITLE_LENGTH = 80

_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<a class="skip" href="#main">Skip to the content</a>
<noscript><p>{without}</p></noscript>
<script type="application/json" id="facts">{facts}</script>
<script>{script}</script>
</body>
</html>
"""

_WITHOUT_SCRIPTS = """The tables and figures of this page are drawn by its own script: allow scripts to see them. No
network is needed. The numbers are also in the run's folder, in summary.json and metrics.jsonl."""


def render(facts: Json) -> str:
    """The page that shows these facts."""
    sections = [f"{{\n{section.drawing()}}}\n" for section in SECTIONS]  # a block each: their names do not meet
    parts = [*map(asset, (LIBRARY, *SCRIPTS)), *sections, asset(LAST_SCRIPT)]
    return compose(_title(facts), parts, [*map(asset, STYLES)], facts, without=_WITHOUT_SCRIPTS)


def compose(
    title: str, scripts: list[str], styles: list[str], facts: Json, *, without: str, more_policy: str = ""
) -> str:
    """A page of one script and one style, which its policy names by hash, and of facts as data.

    Args:
        title: of the browser's window.
        scripts: parts of the script, in their order.
        styles: parts of the style.
        facts: what the script finds in the element `facts`.
        without: what is said where scripts are off.
        more_policy: what the page may do beside running them.
    """
    style, script = "".join(styles), '"use strict";\n(() => {\n' + "\n".join(scripts) + "})();\n"
    return _PAGE.format(
        title=html.escape(title),
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src {policy_hash(style)}; script-src {policy_hash(script)}{more_policy}",
        facts=embedded(facts),
        without=html.escape(without, quote=False),
    )


def write_page(facts: Json, file: Path) -> None:
    """The whole page or nothing."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        RunFolder(file.parent).write(file.name, render(facts).encode("utf-8", "replace"))
    except OSError as error:
        raise RunError(f"{file} cannot be written: {error.strerror}; give another --out") from None


def embedded(facts: Json) -> str:
    """JSON without a character that could end the script element it lies in."""
    text = json.dumps(facts, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _title(facts: Json) -> str:
    runs = facts["runs"]
    name = runs[0]["name"] if len(runs) == 1 else f"{len(runs)} runs"
    return f"{' '.join(str(name).split())[:TITLE_LENGTH]} · fedfdp report"


def asset(name: str) -> str:
    """The text of a file in assets/."""
    return files("fedfdp.report").joinpath("assets", name).read_text(encoding="utf-8")


def policy_hash(text: str) -> str:
    """How a content security policy names the one script or style that it allows."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
