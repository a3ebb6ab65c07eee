"""From the user's rows to those that a model is trained on: merged, split and standardised."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from sikagp.estimators.calibration import ENOUGH, MAX_ROWS, num_held_out
from sikagp.estimators.preparation import (
    MAX_FEATURES,
    Rows,
    Standardiser,
    check_features,
    hold_out,
    merge_rows,
)

few_values = st.sampled_from([-1.0, -0.0, 0.0, 0.5, 2.0])


@st.composite
def tables(draw) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows with many repetitions, and their weights."""
    count = draw(st.integers(1, 12))
    x = draw(arrays(float, (count, 2), elements=few_values))
    y = draw(arrays(float, (count, 1), elements=few_values))
    weight = draw(arrays(float, count, elements=st.sampled_from([0.0, 0.5, 1.0, 3.0])))
    weight[0] = 1.0
    return x, y, weight


def equal(one: Rows, two: Rows) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


@given(tables(), st.randoms())
def test_the_order_of_rows_does_not_matter(table, random):
    order = list(range(len(table[0])))
    random.shuffle(order)
    assert equal(merge_rows(*(part[order] for part in table)), merge_rows(*table))


@given(tables())
def test_merged_rows_are_distinct_and_keep_all_weight(table):
    x, y, weight = table
    merged = merge_rows(x, y, weight)
    rows = {(*a, *b) for a, b in zip(merged.x + 0.0, merged.y, strict=True)}
    assert len(rows) == len(merged.x)
    assert merged.weight.sum() == weight.sum()
    assert (merged.weight > 0).all()
    for a, b, total in zip(merged.x, merged.y, merged.weight, strict=True):
        same = (x == a).all(1) & (y == b).all(1)
        assert weight[same].sum() == total


@given(tables())
def test_twice_is_the_same_as_a_weight_of_two(table):
    x, y, weight = table
    counted = (weight * 2).astype(int)
    repeated = merge_rows(np.repeat(x, counted, 0), np.repeat(y, counted, 0), None)
    assert equal(repeated, merge_rows(x, y, counted))


def test_weights_of_zero_leave_nothing_to_fit():
    with pytest.raises(ValueError, match="all sample weights are zero"):
        merge_rows(np.ones((2, 1)), np.ones((2, 1)), np.zeros(2))


@given(tables())
def test_standardised_columns_have_mean_zero_and_variance_one(table):
    x, _, weight = table
    scaled = Standardiser.fit(x, weight)(x)
    mean = np.average(scaled, axis=0, weights=weight)
    np.testing.assert_allclose(mean, 0, atol=1e-12)
    variance = np.average((scaled - mean) ** 2, axis=0, weights=weight)
    constant = np.array([len(set(column[weight > 0] + 0.0)) == 1 for column in x.T])
    np.testing.assert_allclose(variance[~constant], 1)
    np.testing.assert_allclose(variance[constant], 0, atol=1e-12)


def test_a_standardiser_survives_as_json_to_the_last_bit():
    values = np.random.RandomState(0).randn(9, 3) * [1e-8, 1, 1e8]
    first = Standardiser.fit(values, np.ones(9))
    again = Standardiser.from_config(first.get_config())
    np.testing.assert_array_equal(again(values), first(values))


@pytest.mark.parametrize(
    ("rows", "held_out"),
    [(1, 0), (ENOUGH - 1, 0), (ENOUGH, 50), (1999, 199), (10 * MAX_ROWS, MAX_ROWS), (10**6, 2000)],
)
def test_a_tenth_is_held_out_of_enough_rows(rows, held_out):
    assert num_held_out(rows) == held_out


@pytest.mark.parametrize("count", [1, 30, 99])
def test_rows_held_out_are_the_same_whatever_their_values(count):
    x = np.random.RandomState(0).randn(100, 2)
    rows = Rows(x, x[:, :1], np.arange(100.0))
    split = hold_out(rows, count)
    assert len(split.held_out.x) == count
    both = np.concatenate([split.held_out.weight, split.learned.weight])
    np.testing.assert_array_equal(np.sort(both), rows.weight)
    np.testing.assert_array_equal(split.held_out.x, x[split.held_out.weight.astype(int)])
    other = hold_out(Rows(-x, x[:, :1], rows.weight), count)
    np.testing.assert_array_equal(other.held_out.weight, split.held_out.weight)


def test_without_rows_held_out_all_are_used_for_everything():
    rows = Rows(np.ones((3, 1)), np.ones((3, 1)), np.ones(3))
    assert all(part is rows for part in hold_out(rows, 0))


@pytest.mark.parametrize(("count", "pairs"), [(MAX_FEATURES, False), (141, True)])
def test_as_many_features_as_there_may_be_grids(count, pairs):
    check_features(count, pairs=pairs)
    with pytest.raises(ValueError, match=f"got {count + 1} features"):
        check_features(count + 1, pairs=pairs)
