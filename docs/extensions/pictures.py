"""Draws the figures of "The idea in pictures" and "Choosing" when the site is built.

Every curve is computed by the library itself. Drawings are deterministic and are made again only
when the code that they show, or this folder, has changed.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import drawings
import matplotlib
from matplotlib.figure import Figure
from reference import PACKAGE
from sphinx.application import Sphinx

STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "mathtext.fontset": "cm",
    "svg.hashsalt": "sikagp",
    "savefig.bbox": "tight",
}
FIGURES: dict[str, Callable[[], Figure]] = {
    "grid": drawings.grid,
    "basis": drawings.basis,
    "bridge": drawings.bridge,
    "two_point": drawings.two_point_evaluation,
    "residual": drawings.residual,
    "kernels": drawings.kernels,
    "levels": drawings.levels,
}


def fingerprint() -> str:
    """Hash of the code that the figures come from."""
    sources = [*sorted(Path(__file__).parent.glob("*.py")), *sorted(PACKAGE.rglob("*.py"))]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()


def draw_all(app: Sphinx) -> None:
    """Write the figures into ``generated/figures``."""
    folder = Path(app.srcdir) / "generated" / "figures"
    folder.mkdir(parents=True, exist_ok=True)
    stamp, code = folder / "code.sha256", fingerprint()
    if stamp.exists() and stamp.read_text() == code:
        return
    matplotlib.use("Agg")
    with matplotlib.rc_context(STYLE):
        for name, draw in FIGURES.items():
            draw().savefig(folder / f"{name}.svg", metadata={"Date": None})
    stamp.write_text(code)


def setup(app: Sphinx) -> dict[str, Any]:
    """Draw before Sphinx looks for sources."""
    app.connect("builder-inited", draw_all)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
