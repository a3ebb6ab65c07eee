"""Compiled loops from weight scales to cell covariances and back.

Conventions are those of ``states``. Scratch arrays: ``scale`` is (nodes, s), in dyadic order;
``cells``, (2 nodes - 3, s, s), holds the neighbour covariances of the cells of all levels, where
the halves of cell n are 2 n + 1 and 2 n + 2.
"""

from sikagp.ops.loops.states import add_bridge_gradients, get, new_rows, put, read_rows, write_rows
from sikagp.ops.loops.tools import compile_loop, load
from sikagp.ops.loops.vectors import num_lanes, total, zeros


@compile_loop
def _end_covariance(d, s, scale, boundary, p, q):
    """Covariance of components p and q of the joint state of both ends."""
    covariance = zeros(scale)
    for k in range(2 * s):
        own = get(scale, k)
        covariance += own * own * (boundary[d, p, k] * boundary[d, q, k])
    return covariance


@compile_loop
def build_covariances(d, state, matrix, scale, tree, cells, table):
    """Fill ``table`` and ``cells`` level by level."""
    boundary, left, right, factor = tree
    s, size, rows = len(state), len(matrix), left.shape[1]
    nodes = table.size // (2 * size * num_lanes(table))
    for i in range(s):
        for j in range(s):
            e = i * s + j
            put(table, e, _end_covariance(d, s, scale, boundary, i, j))
            end = _end_covariance(d, s, scale, boundary, s + i, s + j)
            put(table, 2 * (nodes - 1) * size + e, end)
            put(table, (2 * nodes - 1) * size + e, zeros(table))
            put(cells, e, _end_covariance(d, s, scale, boundary, i, s + j))
    half, count, level = (nodes - 1) // 2, 1, 0
    while half > 0:
        for k in range(count):
            n, own = count - 1 + k, (count + 1 + k) * s
            row = (d * rows + (level if rows < nodes - 2 else n)) * size
            g, h, f = load(left, row, matrix), load(right, row, matrix), load(factor, row, matrix)
            a, m, c = 4 * k * half * size, (4 * k + 2) * half * size, (4 * k + 4) * half * size
            parent, first, second = n * size, (2 * n + 1) * size, (2 * n + 2) * size
            for i in range(s):
                for j in range(s):
                    to_left, to_right = zeros(table), zeros(table)
                    for q in range(s):
                        to_left += get(table, a + i * s + q) * g[j * s + q]
                        to_left += get(cells, parent + i * s + q) * h[j * s + q]
                        to_right += get(cells, parent + q * s + j) * g[i * s + q]
                        to_right += get(table, c + q * s + j) * h[i * s + q]
                    put(cells, first + i * s + j, to_left)
                    put(cells, second + i * s + j, to_right)
            for i in range(s):
                for j in range(s):
                    middle = zeros(table)
                    for q in range(s):
                        deviation = get(scale, own + q)
                        middle += get(cells, first + q * s + i) * g[j * s + q]
                        middle += get(cells, second + i * s + q) * h[j * s + q]
                        middle += deviation * deviation * (f[i * s + q] * f[j * s + q])
                    put(table, m + i * s + j, middle)
        half, count, level = half // 2, 2 * count, level + 1
    for n in range(nodes - 1):
        for e in range(size):
            put(table, (2 * n + 1) * size + e, get(cells, (nodes - 2 + n) * size + e))


@compile_loop
def _end_gradient(s, last, d_table, p, q):
    """Gradient of the covariance of components p and q of the joint state of both ends."""
    size = s * s
    if p < s:
        return get(d_table, p * s + q) if q < s else get(d_table, size + p * s + q - s)
    return get(d_table, last + (p - s) * s + q - s) if q >= s else zeros(d_table)


@compile_loop
def _add_end_gradients(d, s, scale, boundary, d_table, d_scale, d_boundary):
    """Gradients of the ends, whose joint covariance is ``boundary diag(scale^2) boundary^T``."""
    last = d_table.size // num_lanes(d_table) - 2 * s * s
    for j in range(2 * s):
        own, to_own = get(scale, j), zeros(scale)
        for i in range(2 * s):
            to_boundary = zeros(scale)
            for k in range(2 * s):
                gradient = _end_gradient(s, last, d_table, i, k)
                to_own += gradient * (boundary[d, i, j] * boundary[d, k, j])
                gradient += _end_gradient(s, last, d_table, k, i)
                to_boundary += gradient * boundary[d, k, j]
            d_boundary[d, i, j] += total(to_boundary * own * own)
        put(d_scale, j, to_own * own * 2)


@compile_loop
def _node_gradients(state, gains, places, scale, cells, table, d_table, sums, d_scale):
    """Carry the gradients of one midpoint and of the halves of its cell to what they came from.

    ``places`` are the rows of the ends and the midpoint in the table, of the cell and its halves in
    ``cells``, and of the midpoint's weight. Gradients of the halves stand with their left ends, and
    are replaced by that of the whole cell.
    """
    (g, h, f), (a, m, c, parent, first, second, own) = gains, places
    s, size = len(state), len(g)
    left, right = a + size, m + size
    for i in range(s):
        for j in range(s):
            to_left, to_right = get(d_table, left + i * s + j), get(d_table, right + i * s + j)
            for q in range(s):
                to_left += get(d_table, m + j * s + q) * g[q * s + i]
                to_right += get(d_table, m + i * s + q) * h[q * s + j]
            put(d_table, left + i * s + j, to_left)
            put(d_table, right + i * s + j, to_right)
    for i in range(s):
        for j in range(s):
            e = i * s + j
            to_g, to_h = get(sums, e), get(sums, size + e)
            for q in range(s):
                d_m = get(d_table, m + q * s + i)
                d_left, d_right = get(d_table, left + q * s + i), get(d_table, right + i * s + q)
                to_g += d_m * get(cells, first + j * s + q)
                to_g += d_right * get(cells, parent + j * s + q)
                to_g += d_left * get(table, a + q * s + j)
                to_h += d_m * get(cells, second + q * s + j)
                to_h += d_left * get(cells, parent + q * s + j)
                to_h += d_right * get(table, c + j * s + q)
            put(sums, e, to_g)
            put(sums, size + e, to_h)
    for j in range(s):  # the innovation, S diag(scale^2) S^T, has the symmetric part of d_m
        deviation, to_own = get(scale, own + j), zeros(scale)
        variance = deviation * deviation
        for i in range(s):
            flow = zeros(scale)
            for q in range(s):
                both = get(d_table, m + q * s + i) + get(d_table, m + i * s + q)
                flow += both * f[q * s + j]
            to_own += flow * f[i * s + j]
            e = 2 * size + i * s + j
            put(sums, e, get(sums, e) + flow * variance)
        put(d_scale, own + j, to_own * deviation)
    for i in range(s):
        for j in range(s):
            e, to_parent = i * s + j, zeros(scale)
            to_a, to_c = get(d_table, a + e), get(d_table, c + e)
            for q in range(s):
                d_left, d_right = get(d_table, left + i * s + q), get(d_table, right + q * s + j)
                to_a += d_left * g[q * s + j]
                to_c += d_right * h[q * s + i]
                to_parent += d_left * h[q * s + j] + d_right * g[q * s + i]
            put(d_table, a + e, to_a)
            put(d_table, c + e, to_c)
            put(sums, 3 * size + e, to_parent)
    for e in range(size):
        put(d_table, left + e, get(sums, 3 * size + e))


@compile_loop
def covariance_gradients(
    d, state, matrix, scale, tree, cells, table, d_table, sums, d_scale, d_tree
):  # fmt: skip
    """Fill the gradients of scales and add to the tree's; ``d_table`` is used up."""
    boundary, left, right, factor = tree
    s, size, rows = len(state), len(matrix), left.shape[1]
    nodes = table.size // (2 * size * num_lanes(table))
    half, count, level = 1, (nodes - 1) // 2, 0
    while 2 << level < nodes - 1:
        level += 1
    sums[:] = 0
    while count > 0:
        for k in range(count):
            n = count - 1 + k
            bridge = level if rows < nodes - 2 else n
            row = (d * rows + bridge) * size
            gains = load(left, row, matrix), load(right, row, matrix), load(factor, row, matrix)
            a, m, c = 4 * k * half * size, (4 * k + 2) * half * size, (4 * k + 4) * half * size
            parent, first, second = n * size, (2 * n + 1) * size, (2 * n + 2) * size
            places = a, m, c, parent, first, second, (count + 1 + k) * s
            _node_gradients(state, gains, places, scale, cells, table, d_table, sums, d_scale)
            if rows == nodes - 2:
                add_bridge_gradients(d, bridge, matrix, sums, d_tree)
        if rows < nodes - 2:
            add_bridge_gradients(d, level, matrix, sums, d_tree)
        half, count, level = 2 * half, count // 2, level - 1
    _add_end_gradients(d, s, scale, boundary, d_table, d_scale, d_tree[0])


@compile_loop
def new_cells(table, matrix):
    """Return scratch for the cells of all levels of a scratch table."""
    nodes = table.size // (2 * len(matrix) * num_lanes(table))
    return new_rows((2 * nodes - 3) * len(matrix), table)


@compile_loop
def covariances_forward(start, stop, state, matrix, scale, tree, table):
    """Fill ``table``, (features, nodes, 2, s, s, outputs), of a range of features."""
    (nodes, s, outputs), lanes = scale.shape[1:], num_lanes(scale)
    own, rows = new_rows(nodes * s, scale), new_rows(2 * nodes * len(matrix), scale)
    cells = new_cells(rows, matrix)
    for d in range(start, stop):
        for v in range(0, outputs, lanes):
            place = d, v, min(lanes, outputs - v)
            read_rows(place, scale, own)
            build_covariances(d, state, matrix, own, tree, cells, rows)
            write_rows(place, rows, table)


@compile_loop
def covariances_backward(start, stop, state, matrix, d_table, scale, tree, d_scale, d_tree):
    """Fill the gradients of scales, and add to those of the tree, of a range of features."""
    (nodes, s, outputs), lanes = scale.shape[1:], num_lanes(scale)
    own, d_own = new_rows(nodes * s, scale), new_rows(nodes * s, scale)
    rows, d_rows = (
        new_rows(2 * nodes * len(matrix), scale),
        new_rows(2 * nodes * len(matrix), scale),
    )
    cells, sums = new_cells(rows, matrix), new_rows(4 * len(matrix), scale)
    for d in range(start, stop):
        for v in range(0, outputs, lanes):
            place = d, v, min(lanes, outputs - v)
            read_rows(place, scale, own)
            read_rows(place, d_table, d_rows)
            build_covariances(d, state, matrix, own, tree, cells, rows)
            covariance_gradients(
                d, state, matrix, own, tree, cells, rows, d_rows, sums, d_own, d_tree
            )
            write_rows(place, d_own, d_scale)
