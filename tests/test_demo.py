"""The demo runs, says what it found, and writes two figures."""

import re
import subprocess
import sys
from pathlib import Path

import matplotlib.image
import pytest

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"
SCORE = re.compile(
    r"^ +(among the data|in the gap|beyond the data) +(\d+\.\d+) +(\d\.\d+)$", re.MULTILINE
)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Run the demo briefly; return its folder and what it printed."""
    out = tmp_path_factory.mktemp("demo")
    command = [sys.executable, str(DEMO), "--steps", "50", "--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return out, done.stdout


@pytest.mark.parametrize("name", ["basis.png", "fit.png"])
def test_figures(demo: tuple[Path, str], name: str) -> None:
    out, printed = demo
    assert str(out / name) in printed
    height, width, channels = (pixels := matplotlib.image.imread(out / name)).shape
    assert 400 < height < 1500
    assert 600 < width < 2000
    assert pixels[..., : min(channels, 3)].std() > 0.02  # not a blank page


def test_scores(demo: tuple[Path, str]) -> None:
    scores = {region: (float(rmse), float(cov)) for region, rmse, cov in SCORE.findall(demo[1])}
    assert set(scores) == {"among the data", "in the gap", "beyond the data"}
    for rmse, coverage in scores.values():
        assert 0 < rmse < 2
        assert 0 <= coverage <= 1
    assert scores["among the data"][0] < scores["beyond the data"][0]
