"""For the site only: what pages link to outside of docs/ comes along as a file, or is named where it is a folder."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[1]
OUTSIDE = re.compile(r"\[([^\]]*)\]\(\.\./([^)#]+)\)")


def on_files(files: Files, config: Any) -> Files:
    wanted = {match[2] for page in files.documentation_pages() for match in OUTSIDE.finditer(page.content_string)}
    for name in sorted(wanted):
        if (ROOT / name).is_file():
            files.append(File.generated(config, f"source/{name}", abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    def placed(match: re.Match[str]) -> str:
        return f"[{match[1]}](source/{match[2]})" if (ROOT / match[2]).is_file() else match[1]

    return OUTSIDE.sub(placed, markdown)
