"""Formulas as MathML, which browsers draw themselves: no script, no network."""

import re
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

LOGGER = logging.getLogger(__name__)
# The converter reads the digits of \frac12 as one number, and sets no space after log and the like.
SHORT_FRACTION = re.compile(r"\\frac(\d)(\d)")
APPLICATION = re.compile(r"<mo>&ApplyFunction;</mo>(?!\s*<mo[^>]*>\()")


def as_mathml(node: nodes.Element, *, as_block: bool) -> str:
    """Convert a formula; one that cannot be converted is a warning and stays as it was typed."""
    try:
        formula = SHORT_FRACTION.sub(r"\\frac{\1}{\2}", node.astext())
        return APPLICATION.sub('<mspace width="0.17em"/>', tex2mathml(formula, as_block=as_block))
    except MathError as error:
        LOGGER.warning("%s in the formula %s", error, node.astext(), location=node, type="mathml")
        return f"<code>{node.astext()}</code>"


def draw_inline(writer: Any, node: nodes.math) -> None:
    """Write a formula within a line of text."""
    writer.body.append(as_mathml(node, as_block=False))
    raise nodes.SkipNode


def draw_block(writer: Any, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, which scroll when they are too long."""
    writer.body.append(f'<div class="formula">{as_mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer; ``html_math_renderer = "mathml"`` chooses it."""
    app.add_html_math_renderer(
        "mathml", inline_renderers=(draw_inline, None), block_renderers=(draw_block, None)
    )
    return {"parallel_read_safe": True, "parallel_write_safe": True}
