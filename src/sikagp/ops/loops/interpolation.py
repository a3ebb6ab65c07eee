"""Compiled loops of the two-point interpolation: forward over rows, backward over features.

Conventions are those of ``states``. Cell numbers are clamped as integers before they address
memory, so that no input, whatever its bits, can read or write beyond a table.
"""

from sikagp.ops.loops.tools import compile_loop, load

BLOCK = 64  # rows that share a feature's table while it is in the cache


@compile_loop
def interpolation_forward(
    start, stop, state, matrix, cell, left, right, states, covariances, mean, variance
):
    """Fill mean and variance of a range of rows."""
    s, last, features = len(state), states.shape[1] - 2, cell.shape[1]
    outputs, zero = states.shape[3], mean.dtype.type(0)
    for first in range(start, stop, BLOCK):
        end = min(first + BLOCK, stop)
        mean[first:end] = zero
        variance[first:end] = zero
        for d in range(features):
            for b in range(first, end):
                n, point = min(max(cell[b, d], 0), last), (b * features + d) * s
                p, q = load(left, point, state), load(right, point, state)
                for o in range(outputs):
                    to_mean = to_variance = zero
                    for i in range(s):
                        to_mean += p[i] * states[d, n, i, o] + q[i] * states[d, n + 1, i, o]
                        for j in range(s):
                            both = p[i] * q[j]
                            to_variance += p[i] * p[j] * covariances[d, n, 0, i, j, o]
                            to_variance += (both + both) * covariances[d, n, 1, i, j, o]
                            to_variance += q[i] * q[j] * covariances[d, n + 1, 0, i, j, o]
                    mean[b, o] += to_mean
                    variance[b, o] += to_variance


@compile_loop
def interpolation_backward(
    start, stop, state, matrix, d_mean, d_variance, cell, left, right, states, covariances,
    d_left, d_right, d_states, d_covariances,
):  # fmt: skip
    """Fill the gradients of weights and tables of a range of features."""
    s, last, features = len(state), states.shape[1] - 2, cell.shape[1]
    outputs, zero = states.shape[3], d_mean.dtype.type(0)
    for d in range(start, stop):
        d_states[d] = zero
        d_covariances[d] = zero
        for b in range(cell.shape[0]):
            n, point = min(max(cell[b, d], 0), last), (b * features + d) * s
            p, q = load(left, point, state), load(right, point, state)
            for i in range(s):
                to_p = to_q = zero
                for o in range(outputs):
                    u, v = d_mean[b, o], d_variance[b, o]
                    sum_p = sum_q = zero
                    for j in range(s):
                        near, cross = covariances[d, n, 0, i, j, o], covariances[d, n, 1, i, j, o]
                        far, back = covariances[d, n + 1, 0, i, j, o], covariances[d, n, 1, j, i, o]
                        sum_p += near * p[j] + cross * q[j]
                        sum_q += far * q[j] + back * p[j]
                    to_p += u * states[d, n, i, o] + v * (sum_p + sum_p)
                    to_q += u * states[d, n + 1, i, o] + v * (sum_q + sum_q)
                d_left[b, d, i] = to_p
                d_right[b, d, i] = to_q
            for i in range(s):
                for o in range(outputs):
                    d_states[d, n, i, o] += p[i] * d_mean[b, o]
                    d_states[d, n + 1, i, o] += q[i] * d_mean[b, o]
                for j in range(s):
                    near, both, far = p[i] * p[j], p[i] * q[j], q[i] * q[j]
                    for o in range(outputs):
                        v = d_variance[b, o]
                        d_covariances[d, n, 0, i, j, o] += near * v
                        d_covariances[d, n, 1, i, j, o] += (both + both) * v
                        d_covariances[d, n + 1, 0, i, j, o] += far * v
