"""The documentation site builds without a warning, stands alone, and leads nowhere wrong."""

import functools
import json
import re
import shutil
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from html import unescape
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from filelock import FileLock
from helpers import shared_folder
from test_architecture import LAYERS

ROOT = Path(__file__).parents[1]
INSPECTOR = Path(__file__).with_name("site_inspector.html")
BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "chrome"))), None)
PHONE = 390


@pytest.fixture(scope="session")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site once for all workers, as ``make docs`` does."""
    shared = shared_folder(tmp_path_factory)
    out = shared / "site"
    with FileLock(shared / "site.lock"):
        if not (out / "objects.inv").exists():
            options = ["-W", "--keep-going", "-q", "-b", "html", "-d", str(shared / "doctrees")]
            command = [sys.executable, "-m", "sphinx", *options, str(ROOT / "docs"), str(out)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr
    return out


class Page(HTMLParser):
    """What a page links to, loads, shows and offers as anchors."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.images: list[str] = []
        self.anchors: set[str] = set()
        self.tags: dict[str, int] = defaultdict(int)
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.tags[tag] += 1
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in ("script", "img", "iframe") and "src" in values:
            self.loads.append(values["src"])
        if tag == "link" and values.get("rel") in ("stylesheet", "preload", "icon"):
            self.loads.append(values["href"])
        if tag == "img":
            self.images.append(values.get("src", ""))


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html"))}


def broken(path: Path, link: str, pages: dict[Path, Page]) -> bool:
    """Whether a link within the site leads to a missing file or anchor."""
    parts = urlsplit(link)
    if parts.scheme or parts.netloc:
        return False
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.exists():
        return True
    return bool(parts.fragment) and unquote(parts.fragment) not in pages[target].anchors


def test_links_lead_somewhere(pages: dict[Path, Page]) -> None:
    assert sum(len(page.links) for page in pages.values()) > 500
    wrong = [
        (path.name, link)
        for path, page in pages.items()
        for link in page.links
        if broken(path, link, pages)
    ]
    assert not wrong


def test_the_link_check_sees_missing_files_and_anchors(pages: dict[Path, Page]) -> None:
    front = next(path for path in pages if path.name == "index.html" and path.parent.name == "site")
    assert not broken(front, "layer.html", pages)
    assert broken(front, "no_such_page.html", pages)
    assert broken(front, "layer.html#no-such-anchor", pages)


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, Page]) -> None:
    outside = [
        (path.name, load)
        for path, page in pages.items()
        for load in page.loads
        if urlsplit(load).netloc
    ]
    assert not outside


def test_figures_are_there(pages: dict[Path, Page]) -> None:
    shown = [
        path.parent / unquote(src)
        for path, page in pages.items()
        for src in page.images
        if "_images/" in src  # not the theme's icons
    ]
    assert {"grid.svg", "basis.svg", "bridge.svg", "fit.png"} <= {path.name for path in shown}
    assert all(path.stat().st_size > 2000 for path in shown)


def test_formulas_are_mathml(pages: dict[Path, Page]) -> None:
    counts = {path.stem: page.tags["math"] for path, page in pages.items()}
    assert counts["pictures"] > 10
    assert counts["metrics"] > 10


def test_names_in_text_link_to_the_reference(pages: dict[Path, Page]) -> None:
    for name in ("equations", "architecture", "notation"):
        (page,) = (page for path, page in pages.items() if path.stem == name)
        assert any("generated/api/" in link and "#sikagp." in link for link in page.links)


def test_the_search_index_knows_the_pages_and_the_reference(site: Path) -> None:
    index = (site / "searchindex.js").read_text(encoding="utf-8")
    assert '"lengthscal"' in index or "lengthscal:" in index
    assert "SIKALayer" in index


def test_every_module_has_a_place_in_the_reference(site: Path) -> None:
    package = ROOT / "src" / "sikagp"
    tops = {path.stem for path in package.glob("*.py")} | {
        path.parent.name for path in package.glob("*/__init__.py")
    }
    written = {path.name for path in (site / "generated" / "api").glob("*.html")}
    assert {f"sikagp.{top}.html" for top in tops if not top.startswith("_")} == written


def test_the_diagram_has_the_layers_of_the_import_test(site: Path) -> None:
    text = (site / "architecture.html").read_text(encoding="utf-8")
    diagram = text[text.index('class="modules') : text.index('id="from-x-to-a-prediction"')]
    rows = diagram.split('class="layer')[1:]
    found = [set(re.findall(r"sikagp\.([\w.]+)</span>", row)) for row in rows]
    package = ROOT / "src" / "sikagp"
    exists = lambda name: (package / name).is_dir() or (package / f"{name}.py").exists()  # noqa: E731
    expected = [{name.replace("/", ".") for name in row if exists(name)} for row in LAYERS]
    assert found == [row for row in expected if row]


class Quiet(SimpleHTTPRequestHandler):
    """Serves the site without a log."""

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Serve the site, with one more page that looks at all the others."""
    pages = sorted(str(path.relative_to(site)) for path in site.rglob("*.html"))
    skipped = ("genindex.html", "search.html", "py-modindex.html", "_inspector.html")
    pages = [page for page in pages if page not in skipped]
    text = INSPECTOR.read_text(encoding="utf-8")
    text = text.replace("PAGES", json.dumps(pages)).replace("PHONE", str(PHONE))
    (site / "_inspector.html").write_text(text, encoding="utf-8")
    handler = functools.partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/_inspector.html"
        server.shutdown()
    (site / "_inspector.html").unlink()


@pytest.mark.skipif(BROWSER is None, reason="no Chromium is installed")
def test_pages_in_a_browser(address: str, tmp_path: Path) -> None:
    options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}"]
    command = [BROWSER, *options, "--virtual-time-budget=600000", "--dump-dom", address]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    match = re.search(r"<pre>(.*)</pre>", done.stdout, re.DOTALL)
    assert match, done.stdout[-2000:] + done.stderr[-2000:]
    report = json.loads(unescape(match[1]))
    assert len(report["pages"]) > 20
    assert sum(page["images"] for page in report["pages"]) > 8
    assert sum(page["formulas"] for page in report["pages"]) > 50
    for page in report["pages"]:
        assert not page["broken"], page
        assert not page["flat"], page
        assert page["wide"] <= 0, page
    assert report["found"]
