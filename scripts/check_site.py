"""Whether a built site needs nothing but itself: python scripts/check_site.py site

Whatever a browser loads by itself must be a file of the site; links that a reader clicks may lead out.
"""

import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED = {"src", "srcset", "poster", "data"}
RELATIONS = {"stylesheet", "preload", "modulepreload", "prefetch", "preconnect", "dns-prefetch", "icon", "manifest"}


class Page(HTMLParser):
    """Collects what a page loads, and where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.loaded += [value for name, value in given.items() if name in LOADED]
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and set(given.get("rel", "").split()) & RELATIONS:
            self.loaded.append(given.get("href", ""))


def problems(site: Path) -> list[str]:
    """What is loaded from elsewhere or is not there, one line each."""
    found = []
    for file in sorted(site.rglob("*.html")):
        page = Page()
        page.feed(file.read_text(encoding="utf-8"))
        inside = [link for link in page.links if not urlsplit(link).scheme and not link.startswith("//")]
        found += [f"{file.name} loads {a}" for a in page.loaded if not _there(a, file)]
        found += [f"{file.name} links to {a}" for a in inside if not _there(a, file)]
    for file in sorted(site.rglob("*.css")):
        text = file.read_text(encoding="utf-8")
        named = re.findall(r"url\(\s*['\"]?([^'\")]+)", text) + re.findall(r"@import\s+['\"]([^'\"]+)", text)
        found += [f"{file.name} loads {address}" for address in named if not _there(address, file)]
    return found


def _there(address: str, file: Path) -> bool:
    parts = urlsplit(address)
    if parts.scheme == "data":
        return True
    if parts.scheme or parts.netloc:
        return False
    if file.name == "404.html":  # its addresses count from the top of a server
        parts = parts._replace(path=parts.path.lstrip("/"))
    return not parts.path or (file.parent / unquote(parts.path)).exists()


if __name__ == "__main__":
    wrong = problems(Path(sys.argv[1]))
    print("\n".join(wrong) or f"{sys.argv[1]}: needs no network")
    sys.exit(bool(wrong))
