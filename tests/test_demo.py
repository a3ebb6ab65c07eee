"""The demo runs, says what it found, and writes one report that needs nothing else."""

import importlib
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import matplotlib.image
import pytest
from filelock import FileLock
from helpers import shared_folder

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"
SCORE = re.compile(
    r"^ +(among the data|in the gap|beyond the data) +(\d+\.\d+) +(\d\.\d+)$", re.MULTILINE
)


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the demo briefly, once for all workers; return its folder and what it printed."""
    out = shared_folder(tmp_path_factory) / "demo"
    said = out / "said.txt"
    with FileLock(out.with_suffix(".lock")):
        if not said.exists():
            command = [sys.executable, str(DEMO), "--quick", "--out", str(out)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
            assert done.returncode == 0, done.stderr
            said.write_text(done.stdout, encoding="utf-8")
    return out, said.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["basis.png", "fit.png", "effects.png", "reliability.png"])
def test_figures(demo: tuple[Path, str], name: str) -> None:
    height, width, channels = (pixels := matplotlib.image.imread(demo[0] / name)).shape
    assert 400 < height < 1500
    assert 400 < width < 2000
    assert pixels[..., : min(channels, 3)].std() > 0.02  # not a blank page


def test_scores(demo: tuple[Path, str]) -> None:
    scores = {region: (float(rmse), float(cov)) for region, rmse, cov in SCORE.findall(demo[1])}
    assert set(scores) == {"among the data", "in the gap", "beyond the data"}
    for rmse, coverage in scores.values():
        assert 0 < rmse < 2
        assert 0 <= coverage <= 1
    assert scores["among the data"][0] < scores["beyond the data"][0]


class Links(HTMLParser):
    """Collects what a page refers to, and the words of its cells."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_report_stands_alone(demo: tuple[Path, str]) -> None:
    path = demo[0] / "report.html"
    assert str(path) in demo[1]
    page = Links()
    page.feed(text := path.read_text(encoding="utf-8"))
    assert len(page.links) == 4
    assert all(link.startswith("data:image/png;base64,") for link in page.links)
    assert not {"script", "link", "iframe"} & set(page.tags)
    for word in ("SIKARegressor", "SIKAClassifier", "MLPRegressor", "GPyTorch SVGP", "seconds"):
        assert word in text


def test_the_svgp_baseline_predicts_two_classes(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "examples"))
    compare = importlib.import_module("compare_estimators").compare
    (row,) = compare("breast_cancer", 0, steps=3, epochs=1, only="SVGP")
    assert 0 <= row["accuracy"] <= 1
    assert 0 < row["nll"] < 2
