"""The documentation as a site: builds without a warning, needs no network, and is searched and read from a disk."""

import os
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from report.browser import Browser, find

ROOT = Path(__file__).parents[1]
problems = runpy.run_path(str(ROOT / "scripts" / "check_site.py"))["problems"]


@pytest.mark.parametrize(
    ("markup", "wrong"),
    [
        ('<script src="https://cdn.example/x.js"></script>', "page.html loads https://cdn.example/x.js"),
        ('<link rel="preconnect" href="//fonts.example">', "page.html loads //fonts.example"),
        ('<img src="gone.png">', "page.html loads gone.png"),
        ('<a href="gone.html#part">x</a>', "page.html links to gone.html#part"),
        ('<a href="https://example.org">a reader may go there</a><img src="data:,x"><a href="#top">x</a>', None),
    ],
)
def test_the_check_finds_what_is_loaded_from_elsewhere(tmp_path, markup, wrong):
    (tmp_path / "page.html").write_text(markup)
    assert problems(tmp_path) == ([wrong] if wrong else [])


def test_the_check_reads_styles(tmp_path):
    (tmp_path / "a.css").write_text('@import "https://fonts.example/a.css"; b { background: url(data:image/png;x) }')
    assert problems(tmp_path) == ["a.css loads https://fonts.example/a.css"]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("mkdocs", reason="installed by make docs")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    offline = {
        **os.environ,
        "NO_MKDOCS_2_WARNING": "1",
        "http_proxy": "http://127.0.0.1:9",
        "https_proxy": "http://127.0.0.1:9",
    }
    done = subprocess.run(command, cwd=ROOT, env=offline, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.mark.slow
def test_it_builds_without_a_warning_and_needs_nothing_but_itself(site):
    assert problems(site) == []
    pages = {page.stem for page in (ROOT / "docs").glob("*.md")}
    assert pages <= {page.stem for page in site.glob("*.html")}


@pytest.mark.slow
@pytest.mark.skipif(find() is None, reason="no chromium here")
def test_it_is_read_and_searched_from_a_disk(site, tmp_path):
    browser = Browser(tmp_path / "profile")
    try:
        browser.resize(1280)
        browser.call("Page.navigate", url=(site / "index.html").as_uri())
        browser.wait("document.readyState === 'complete' && location.pathname.endsWith('index.html')")
        browser.js("[...document.querySelectorAll('.md-nav a')].find(a => a.textContent.trim() === 'FAQ').click()")
        browser.wait("location.pathname.endsWith('faq.html') && document.readyState === 'complete'")
        browser.js("document.querySelector('.md-search__input').focus()")
        browser.call("Input.insertText", text="persons")
        browser.wait("document.querySelectorAll('.md-search-result__item a').length > 0")
        found = browser.js("[...document.querySelectorAll('.md-search-result__item a')].map(a => a.href)")
        assert any("privacy.html" in address and "persons-instead-of-records" in address for address in found), found
        for name in ("start", "examples", "faq", "concepts"):  # on a phone nothing sticks out
            browser.resize(390)
            browser.call("Page.navigate", url=(site / f"{name}.html").as_uri())
            browser.wait(f"document.readyState === 'complete' && location.pathname.endsWith('{name}.html')")
            assert browser.js("document.documentElement.scrollWidth") <= 390
        assert all(address.startswith(("file:", "data:", "blob:", "about:")) for address in browser.requests)
        assert browser.console == []
    finally:
        browser.close()
