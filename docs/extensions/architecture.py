"""The directive ``modules``: the package's modules in the order of their imports.

The rows are those of ``LAYERS`` in ``tests/test_architecture.py``, the list that the tests hold
every import to, so that the diagram cannot differ from the code.
"""

import ast
from pathlib import Path
from typing import Any

from docutils import nodes
from reference import PACKAGE
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

RULES = Path(__file__).parents[2] / "tests" / "test_architecture.py"


def layers() -> list[tuple[str, ...]]:
    """Return rows of modules; each may import from itself and from the rows before it."""
    for node in ast.parse(RULES.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "LAYERS":
            return ast.literal_eval(node.value)
    raise ValueError(f"{RULES} assigns no LAYERS")


def summary(module: str) -> str | None:
    """First line of a module's docstring, or None if the package has no such module."""
    for path in (PACKAGE / f"{module}.py", PACKAGE / module / "__init__.py"):
        if path.exists():
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            return text.partition("\n")[0].replace("``", "")
    return None


def box(module: str, about: str) -> nodes.container:
    """Return a module's name, to be linked to its page, above its summary."""
    name = nodes.literal("", f"sikagp.{module.replace('/', '.')}")
    texts = nodes.paragraph("", "", name), nodes.paragraph("", about)
    return nodes.container("", *texts, classes=["module"])


class Modules(SphinxDirective):
    """Draw one row of boxes per layer."""

    def run(self) -> list[nodes.Node]:
        """Return the rows from the foundation upwards."""
        self.env.note_dependency(str(RULES))
        diagram = nodes.container("", classes=["modules"])
        for row in layers():
            found = [(module, about) for module in row if (about := summary(module)) is not None]
            if found:
                boxes = [box(*entry) for entry in found]
                diagram += nodes.container("", *boxes, classes=["layer"])
        return [diagram]


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the directive."""
    app.add_directive("modules", Modules)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
