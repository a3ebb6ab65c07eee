"""Compiled loops of the two-point interpolation: forward over rows, backward over features.

Conventions are those of ``states``. Cell numbers are clamped as integers before they address
memory, so that no input, whatever its bits, can read or write beyond a table.
"""

from sikagp.ops.loops.tools import compile_loop, load

BLOCK = 64  # rows that share a feature's table while it is in the cache


@compile_loop
def add_feature(first, end, d, slot, state, cell, left, right, states, covariances, mean, variance):
    """Add feature d, whose tables stand at ``slot``, to mean and variance of a range of rows."""
    s, last, features = len(state), states.shape[1] - 2, cell.shape[1]
    outputs, zero = states.shape[3], mean.dtype.type(0)
    for b in range(first, end):
        n, point = min(max(cell[b, d], 0), last), (b * features + d) * s
        p, q = load(left, point, state), load(right, point, state)
        for o in range(outputs):
            to_mean = to_variance = zero
            for i in range(s):
                to_mean += p[i] * states[slot, n, i, o] + q[i] * states[slot, n + 1, i, o]
                for j in range(s):
                    both = p[i] * q[j]
                    to_variance += p[i] * p[j] * covariances[slot, n, 0, i, j, o]
                    to_variance += (both + both) * covariances[slot, n, 1, i, j, o]
                    to_variance += q[i] * q[j] * covariances[slot, n + 1, 0, i, j, o]
            mean[b, o] += to_mean
            variance[b, o] += to_variance


@compile_loop
def feature_gradients(
    d, slot, state, d_mean, d_variance, cell, left, right, states, covariances,
    d_left, d_right, d_states, d_covariances,
):  # fmt: skip
    """Fill the gradients of feature d, whose tables stand at ``slot``."""
    s, last, features = len(state), states.shape[1] - 2, cell.shape[1]
    outputs, zero = states.shape[3], d_mean.dtype.type(0)
    d_states[slot] = zero
    d_covariances[slot] = zero
    for b in range(cell.shape[0]):
        n, point = min(max(cell[b, d], 0), last), (b * features + d) * s
        p, q = load(left, point, state), load(right, point, state)
        for i in range(s):
            to_p = to_q = zero
            for o in range(outputs):
                u, v = d_mean[b, o], d_variance[b, o]
                sum_p = sum_q = zero
                for j in range(s):
                    near, far = (
                        covariances[slot, n, 0, i, j, o],
                        covariances[slot, n + 1, 0, i, j, o],
                    )
                    across, back = (
                        covariances[slot, n, 1, i, j, o],
                        covariances[slot, n, 1, j, i, o],
                    )
                    sum_p += near * p[j] + across * q[j]
                    sum_q += far * q[j] + back * p[j]
                to_p += u * states[slot, n, i, o] + v * (sum_p + sum_p)
                to_q += u * states[slot, n + 1, i, o] + v * (sum_q + sum_q)
            d_left[b, d, i] = to_p
            d_right[b, d, i] = to_q
        for i in range(s):
            for o in range(outputs):
                d_states[slot, n, i, o] += p[i] * d_mean[b, o]
                d_states[slot, n + 1, i, o] += q[i] * d_mean[b, o]
            for j in range(s):
                near, both, far = p[i] * p[j], p[i] * q[j], q[i] * q[j]
                for o in range(outputs):
                    v = d_variance[b, o]
                    d_covariances[slot, n, 0, i, j, o] += near * v
                    d_covariances[slot, n, 1, i, j, o] += (both + both) * v
                    d_covariances[slot, n + 1, 0, i, j, o] += far * v


@compile_loop
def interpolation_forward(
    start, stop, state, matrix, cell, left, right, states, covariances, mean, variance
):
    """Fill mean and variance of a range of rows."""
    for first in range(start, stop, BLOCK):
        end = min(first + BLOCK, stop)
        mean[first:end] = 0
        variance[first:end] = 0
        for d in range(cell.shape[1]):
            add_feature(
                first, end, d, d, state, cell, left, right, states, covariances, mean, variance
            )


@compile_loop
def interpolation_backward(
    start, stop, state, matrix, d_mean, d_variance, cell, left, right, states, covariances,
    d_left, d_right, d_states, d_covariances,
):  # fmt: skip
    """Fill the gradients of weights and tables of a range of features."""
    for d in range(start, stop):
        feature_gradients(
            d, d, state, d_mean, d_variance, cell, left, right, states, covariances,
            d_left, d_right, d_states, d_covariances,
        )  # fmt: skip
