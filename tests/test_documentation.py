"""What the pages say is true: their code runs, their links lead somewhere, and doctests pass."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
import torch

import sikagp

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGE = Path(sikagp.__file__).parent
# By path, so that a module that fails to import fails its own test and no other.
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
)
FENCED = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(`+)[^`].*?\1")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

# linear_operator, which GPyTorch imports, still scripts a function when it is loaded.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def python_blocks(text: str) -> list[str]:
    """Return the python blocks of a page, moved down to the lines where they stand."""
    return [
        "\n" * text.count("\n", 0, block.start(2)) + block[2]
        for block in FENCED.finditer(text)
        if block[1] == "python"
    ]


PAGES_WITH_CODE = [page for page in PAGES if python_blocks(page.read_text())]


def test_the_main_pages_have_code() -> None:
    assert {"README.md", "docs/layer.md"} <= set(map(page_name, PAGES_WITH_CODE))


def test_blocks_keep_their_line_numbers() -> None:
    (block,) = python_blocks("a\n\n```sh\nls\n```\n\n```python\nb = 1\n```\n")
    assert block.splitlines().index("b = 1") == 7


@pytest.mark.parametrize("page", PAGES_WITH_CODE, ids=page_name)
def test_code_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    namespace = {"__name__": "__main__"}
    for block in python_blocks(page.read_text()):
        exec(compile(block, page_name(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_lead_somewhere(page: Path) -> None:
    prose = INLINE.sub("", FENCED.sub("", page.read_text()))
    targets = [link.partition("#")[0] for link in LINK.findall(prose) if "://" not in link]
    missing = [target for target in targets if target and not (page.parent / target).exists()]
    assert not missing


@pytest.mark.parametrize("name", MODULES)
def test_doctests(name: str) -> None:
    module = importlib.import_module(name)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    torch.manual_seed(0)
    for example in doctest.DocTestFinder().find(module, extraglobs={"torch": torch}):
        runner.run(example)
    assert runner.summarize(verbose=False).failed == 0
