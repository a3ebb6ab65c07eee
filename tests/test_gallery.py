"""The short examples run, and the gallery shows all of them."""

import runpy
import sys
from pathlib import Path

import matplotlib
import matplotlib.image
import pytest

ROOT = Path(__file__).parents[1]
SCRIPTS = [
    path
    for path in sorted((ROOT / "examples").glob("*.py"))
    if "from gallery import" in path.read_text(encoding="utf-8")
]

# linear_operator, which GPyTorch imports, still scripts a function when it is loaded.
pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_example_runs(script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(script.parent))
    monkeypatch.setattr(sys, "argv", [script.name, "--quick", "--out", str(tmp_path)])
    monkeypatch.delitem(sys.modules, "gallery", raising=False)
    runpy.run_path(str(script), run_name="__main__")
    matplotlib.pyplot.close("all")
    shown = ROOT / "docs" / "images" / "examples" / f"{script.stem}.png"
    if shown.exists():
        pixels = matplotlib.image.imread(tmp_path / shown.name)
        assert pixels.shape == matplotlib.image.imread(shown).shape
        assert pixels[..., :3].std() > 0.02  # not a blank page


def test_the_gallery_shows_every_example() -> None:
    text = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert SCRIPTS
    for script in SCRIPTS:
        assert script.read_text(encoding="utf-8").startswith("# %% [markdown]\n# # ")
        assert f"../examples/{script.name}" in text
