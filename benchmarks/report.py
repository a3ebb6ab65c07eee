"""Writing results into the documentation, so that no number there is typed by hand.

What stands between ``<!-- benchmark: NAME -->`` and ``<!-- end -->`` on the page is replaced by the
tables of that benchmark, and its figure is copied next to the page.
"""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from benchmarks.results import ROOT, Result, load
from benchmarks.runner import load_benchmark

PAGE = ROOT / "docs" / "performance.md"
PICTURES = Path("images/performance")
SECTION = re.compile(r"(<!-- benchmark: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def write(names: Sequence[str], folder: Path, page: Path = PAGE) -> int:
    """Replace the sections of the page that have results; say which have none."""
    text = page.read_text()
    present = {match[2] for match in SECTION.finditer(text)}
    status = 0
    for name in names:
        path = folder / f"{name}.json"
        if name not in present or not path.exists():
            print(f"{name}: nothing to write, {path if name in present else page} has no results")
            status = 1
            continue
        text = replace_section(text, name, section(load(path)))
        _copy_figure(path.with_suffix(".png"), page)
        print(f"{name}: written into {page}")
    page.write_text(text)
    return status


def replace_section(text: str, name: str, content: str) -> str:
    """Put content between the markers of one benchmark."""

    def put(match: re.Match[str]) -> str:
        return match[0] if match[2] != name else f"{match[1]}\n{content}\n\n{match[4]}"

    return SECTION.sub(put, text)


def section(result: Result) -> str:
    """Return tables, figure and origin of one result as Markdown."""
    benchmark = load_benchmark(result["benchmark"])
    parts = [table.to_markdown() for table in benchmark.tables(result)]
    picture = PICTURES / f"{result['benchmark']}.png"
    parts += [f"![{result['question']}]({picture.as_posix()})", origin(result)]
    return "\n\n".join(parts)


def origin(result: Result) -> str:
    """Say where the numbers come from, in one line."""
    machine, versions, settings = result["machine"], result["versions"], result["settings"]
    device = machine.get("accelerator", machine["processor"])
    mode = "quick mode, " if settings["quick"] else ""
    partial = "" if result["complete"] else "interrupted, "
    commit = (result["git"]["commit"] or "unknown")[:10]
    changed = ", with changes" if result["git"]["modified"] else ""
    return (
        f"*Measured on {device}, {settings['threads']} threads; {mode}{partial}"
        f"torch {versions['torch']}, numba {versions['numba']}, commit {commit}{changed}.*"
    )


def _copy_figure(picture: Path, page: Path) -> None:
    target = page.parent / PICTURES
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(picture, target / picture.name)
