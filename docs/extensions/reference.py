"""Pages of the API reference: one per top-level module, found in the package, never listed by hand.

Public names come first (``generated/public.txt``), then modules in alphabetical order. Compiled
loops and private modules are left out: the first are plain functions for Numba, the others are
nobody's interface.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

import sikagp

PACKAGE = Path(sikagp.__file__).parent
HIDDEN = ("sikagp.ops.loops",)


def module_names() -> list[str]:
    """Full names of all modules that have a page or a section."""
    paths = (path.relative_to(PACKAGE.parent).with_suffix("") for path in PACKAGE.rglob("*.py"))
    names = sorted(".".join(path.parts).removesuffix(".__init__") for path in paths)
    return [
        name
        for name in names
        if name != "sikagp" and "._" not in name and not name.startswith(HIDDEN)
    ]


def home_of(public: str) -> str:
    """Full name of a public object where it is defined."""
    thing = getattr(sikagp, public)
    return f"{thing.__module__}.{public}"


def first_line(thing: Any) -> str:
    """What something is, in one line."""
    return (thing.__doc__ or "").strip().partition("\n")[0]


def page(top: str, names: list[str]) -> str:
    """Return the page of a top-level module with a section for each module within."""
    text = heading(top, "=") + module_block(top)
    for name in names:
        if name != top:
            text += heading(name, "-") + module_block(name)
    return text


def heading(title: str, line: str) -> str:
    """Return a title, underlined."""
    return f"{title}\n{line * len(title)}\n\n"


def module_block(name: str) -> str:
    """Document what a module defines itself."""
    options = ("members", "ignore-module-all", "show-inheritance")
    return f".. automodule:: {name}\n" + "".join(f"   :{option}:\n" for option in options) + "\n"


def public_table() -> str:
    """List the names that ``import sikagp`` offers, each with its first line."""
    rows = []
    for name in sikagp.__all__:
        if not name.startswith("_"):
            about = first_line(getattr(sikagp, name))
            rows.append(f"   * - :py:obj:`~{home_of(name)}`\n     - {about}\n")
    return ".. list-table::\n   :widths: 30 70\n\n" + "".join(rows)


def write_pages(app: Sphinx) -> None:
    """Write what changed, so that unchanged pages are not built again."""
    folder = Path(app.srcdir) / "generated"
    names = module_names()
    tops = sorted({".".join(name.split(".")[:2]) for name in names})
    files = {
        f"api/{top}.rst": page(
            top, [name for name in names if name == top or name.startswith(f"{top}.")]
        )
        for top in tops
    }
    files["public.txt"] = public_table()
    for name in names:
        import_module(name)
    for old in (folder / "api").glob("*.rst"):
        if f"api/{old.name}" not in files:
            old.unlink()
    for name, text in files.items():
        write_if_changed(folder / name, text)


def write_if_changed(path: Path, text: str) -> None:
    """Keep the file's time when there is nothing new."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def setup(app: Sphinx) -> dict[str, Any]:
    """Write the pages before Sphinx looks for sources."""
    app.connect("builder-inited", write_pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
