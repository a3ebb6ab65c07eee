"""Compiled loops of a training step: from weights to moments and back, feature by feature.

A feature's tables are built in a scratch buffer, used by all rows while they are in the cache, and
dropped; the backward pass builds them again. So neither the tables nor their gradients ever travel
to memory: only weights and scales are read, and only their gradients are written.

Features come in ``len(mean)`` groups of fixed size, each with its own sums, so that the result does
not depend on the number of threads. Conventions are those of ``states``.
"""

import numpy as np

from sikagp.ops.loops.covariances import covariances_backward, covariances_forward
from sikagp.ops.loops.interpolation import add_feature, feature_gradients
from sikagp.ops.loops.states import states_backward, states_forward
from sikagp.ops.loops.tools import compile_loop


@compile_loop
def _build(d, state, matrix, weight, scale, boundary, left, right, factor, states, table):
    """Fill the scratch tables with those of feature d."""
    one = slice(d, d + 1)
    tree = boundary[one], left[one], right[one], factor[one]
    states_forward(0, 1, state, matrix, weight[one], *tree, states)
    covariances_forward(0, 1, state, matrix, scale[one], *tree, table)


@compile_loop
def moments_forward(
    start, stop, state, matrix, cell, near, far, weight, scale, boundary, left, right, factor,
    mean, variance,
):  # fmt: skip
    """Fill mean and variance, (groups, rows, outputs), of a range of groups of features."""
    s, features, nodes, outputs = len(state), len(weight), weight.shape[1], weight.shape[3]
    states = np.empty((1, nodes, s, outputs), weight.dtype)
    table = np.empty((1, nodes, 2, s, s, outputs), weight.dtype)
    for group in range(start, stop):
        mean[group] = 0
        variance[group] = 0
        for d in range(group * features // len(mean), (group + 1) * features // len(mean)):
            _build(d, state, matrix, weight, scale, boundary, left, right, factor, states, table)
            add_feature(
                0, len(cell), d, 0, state, cell, near, far, states, table,
                mean[group], variance[group],
            )  # fmt: skip


@compile_loop
def moments_backward(
    start, stop, state, matrix, d_mean, d_variance, cell, near, far, weight, scale,
    boundary, left, right, factor,
    d_near, d_far, d_weight, d_scale, d_boundary, d_left, d_right, d_factor,
):  # fmt: skip
    """Fill the gradients of a range of features, and add to those of their trees."""
    s, nodes, outputs = len(state), weight.shape[1], weight.shape[3]
    states = np.empty((1, nodes, s, outputs), weight.dtype)
    table = np.empty((1, nodes, 2, s, s, outputs), weight.dtype)
    d_states, d_table = np.empty_like(states), np.empty_like(table)
    for d in range(start, stop):
        _build(d, state, matrix, weight, scale, boundary, left, right, factor, states, table)
        feature_gradients(
            d, 0, state, d_mean, d_variance, cell, near, far, states, table,
            d_near, d_far, d_states, d_table,
        )  # fmt: skip
        one = slice(d, d + 1)
        tree = boundary[one], left[one], right[one], factor[one]
        d_tree = d_boundary[one], d_left[one], d_right[one], d_factor[one]
        states_backward(
            0, 1, state, matrix, d_states, states, weight[one], *tree, d_weight[one], *d_tree
        )
        covariances_backward(
            0, 1, state, matrix, d_table, table, scale[one], *tree, d_scale[one], *d_tree
        )
