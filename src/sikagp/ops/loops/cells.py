"""Finding the cell of a point; numbers are clamped as integers, whatever bits the point has."""

import numpy as np

from sikagp.ops.loops.tools import compile_loop


@compile_loop
def _search(nodes, line, inner):
    """Number of the cell by bisection; 0 for NaN."""
    low, high = 0, nodes.shape[1] - 1
    while high - low > 1:
        middle = (low + high) // 2
        if inner >= nodes[line, middle]:
            low = middle
        else:
            high = middle
    return low


@compile_loop
def find_cell(nodes, line, inner, even):
    """Number and ends of the cell that holds a point of [0, 1]; ``even`` cells are equally wide."""
    cells = nodes.shape[1] - 1
    if even:  # powers of two: the ends are exact, and nothing is looked up
        c, width = min(max(np.int64(inner * cells), 0), cells - 1), 1.0 / cells
        return c, c * width, (c + 1) * width
    c = _search(nodes, line, inner)
    return c, nodes[line, c], nodes[line, c + 1]
