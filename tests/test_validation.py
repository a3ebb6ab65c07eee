"""Bad input: each error says what was expected and what came."""

import re

import numpy as np
import pytest
import torch
from helpers import PLANS, random_layer

from sikagp import BrownianMotion, SIKALayer
from sikagp.validation import (
    check_choice,
    check_count,
    check_fraction,
    check_level,
    check_number,
    check_positive,
)

pytestmark = pytest.mark.usefixtures("as_users_run")

NAN, INF = float("nan"), float("inf")


def entries(layer):
    """Everything that takes an input."""
    yield layer
    yield layer.features
    yield layer.paths(2)
    for method in ("local", "flipout", "path"):
        yield lambda x, method=method: layer.sample(x, 2, method=method)


@pytest.mark.parametrize(
    ("x", "error", "message"),
    [
        (torch.zeros(5, 3), ValueError, r"shape \(\*batch, 2\), got shape \(5, 3\)"),
        (torch.zeros(2, 5), ValueError, r"shape \(\*batch, 2\), got shape \(2, 5\)"),
        (torch.zeros(5, 0), ValueError, r"shape \(\*batch, 2\), got shape \(5, 0\)"),
        (torch.tensor(1.0), ValueError, r"shape \(\*batch, 2\), got shape \(\)"),
        (torch.zeros(5, 2, dtype=torch.int64), TypeError, "floating-point tensor, got torch.int64"),
        (torch.zeros(5, 2, dtype=torch.bool), TypeError, "floating-point tensor, got torch.bool"),
        (
            torch.zeros(5, 2, dtype=torch.complex64),
            TypeError,
            "floating-point tensor, got torch.complex64",
        ),
        ([[0.0, 1.0]], TypeError, "expected a torch.Tensor, got list"),
    ],
)
def test_inputs_of_the_wrong_kind(x, error, message):
    for entry in entries(random_layer()):
        with pytest.raises(error, match=message):
            entry(x)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_non_finite_input_names_the_number_of_rows(bad):
    x = torch.zeros(2, 3, 2)
    x[0, 1, 0] = x[0, 1, 1] = x[1, 2, 1] = bad
    for entry in entries(random_layer()):
        with pytest.raises(ValueError, match="2 of 6 rows hold NaN or infinity"):
            entry(x)


@pytest.mark.parametrize("plan", PLANS)
def test_the_check_can_be_turned_off_and_spares_the_other_rows(plan):
    layer = random_layer(plan=plan, check_finite=False)
    x = torch.tensor([[0.2, 0.3], [NAN, 0.3], [INF, 0.3]], dtype=torch.float64)
    q = layer(x)
    assert bool(q.mean[0].isfinite().all())
    assert torch.allclose(q.mean[0], layer(x[:1]).mean[0])
    assert bool(q.mean[1].isnan().all())


def test_the_check_can_be_turned_off_for_draws():
    layer = random_layer(check_finite=False)
    x = torch.tensor([[0.2, 0.3], [NAN, 0.3]], dtype=torch.float64)
    for entry in entries(layer):
        entry(x)


@pytest.mark.parametrize("plan", ["auto", *PLANS])
def test_empty_batches_give_empty_answers(plan):
    layer = random_layer(plan=plan)
    for mode in (True, False):
        q = layer.train(mode)(torch.zeros(0, 2))
        assert q.mean.shape == q.variance.shape == (0, 3)
    q.mean.sum().backward()


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"level": 0}, ValueError, "level must be at least 1, got 0"),
        ({"level": -3}, ValueError, "level must be at least 1, got -3"),
        ({"level": 21}, ValueError, "level must be at most 20 .*got 21"),
        ({"level": 2.5}, TypeError, "level must be an integer, got 2.5"),
        ({"in_features": 0}, ValueError, "in_features must be at least 1, got 0"),
        ({"out_features": "3"}, TypeError, "out_features must be an integer, got '3'"),
        ({"in_features": True}, TypeError, "in_features must be an integer, got True"),
        ({"lengthscale": 0.0}, ValueError, "lengthscale must be positive and finite, got 0"),
        ({"lengthscale": -1.0}, ValueError, "lengthscale must be positive and finite, got -1"),
        ({"lengthscale": NAN}, ValueError, "lengthscale must be positive and finite, got nan"),
        (
            {"lengthscale": torch.tensor([1.0, -2.0])},
            ValueError,
            "lengthscale must be positive and finite, got -2",
        ),
        (
            {"lengthscale": torch.ones(3)},
            ValueError,
            r"lengthscale must be one number or have shape \(2,\), got shape \(3,\)",
        ),
        ({"domain": (1.0, 1.0)}, ValueError, "low < high for every feature, got 1.0 and 1.0"),
        ({"domain": (2.0, 1.0)}, ValueError, "low < high for every feature, got 2.0 and 1.0"),
        ({"domain": (torch.zeros(3), torch.ones(3))}, ValueError, "3 features, the layer has 2"),
        ({"domain": 1.0}, TypeError, r"domain must be \(low, high\) or a Domain, got 1.0"),
        ({"domain": (0.0, 0.5, 1.0)}, TypeError, r"domain must be \(low, high\)"),
        ({"kernel": "rbf"}, ValueError, "kernel must be one of 'laplace'.*got 'rbf'"),
        ({"residual": "some"}, ValueError, "'full', 'outside', 'none', got 'some'"),
        ({"plan": "fast"}, ValueError, "'auto', 'sparse', 'table', 'dense', got 'fast'"),
        (
            {"kernel": BrownianMotion(), "lengthscale": 2.0},
            ValueError,
            "BrownianMotion has no lengthscale, got 2.0",
        ),
        (
            {"kernel": "bridge", "lengthscale": torch.tensor([2.0, 3.0])},
            ValueError,
            "BrownianBridge has no lengthscale",
        ),
    ],
)
def test_layers_that_cannot_be_built(options, error, message):
    options = {"in_features": 2, "out_features": 3, "level": 2, **options}
    with pytest.raises(error, match=message):
        SIKALayer(options.pop("in_features"), options.pop("out_features"), **options)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda layer, x: layer.sample(x, 0), "num_samples must be at least 1, got 0"),
        (lambda layer, x: layer.paths(0), "num_paths must be at least 1, got 0"),
        (
            lambda layer, x: layer.sample(x, 1, method="exact"),
            "'local', 'flipout', 'path', got 'exact'",
        ),
    ],
)
def test_draws_that_cannot_be_made(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call(random_layer(), torch.zeros(1, 2))


def test_checks_return_what_is_fine():
    assert check_count("n", 3) == 3
    assert type(check_count("n", np.int64(3))) is int
    assert check_count("n", 0, least=0) == 0
    assert check_level(20) == 20
    assert check_number("x", np.float32(0.5)) == 0.5
    assert check_fraction("x", 0.5) == 0.5
    assert check_choice("plan", "a", ("a", "b")) == "a"
    assert check_positive("x", 2, (3,)).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("value", [1j, True, torch.tensor([True])])
def test_only_real_numbers_are_positive(value):
    with pytest.raises(TypeError, match="x must hold real numbers, got torch"):
        check_positive("x", value, (1,))


@pytest.mark.parametrize(
    ("check", "value", "error", "message"),
    [
        (check_count, np.bool_(True), TypeError, "x must be an integer, got np.True_"),
        (check_count, 2.0, TypeError, "x must be an integer, got 2.0"),
        (check_number, True, TypeError, "x must be a number, got True"),
        (check_number, "3", TypeError, "x must be a number, got '3'"),
        (check_number, 1j, TypeError, "x must be a number, got 1j"),
        (check_number, NAN, ValueError, "x must be finite, got nan"),
        (check_number, -INF, ValueError, "x must be finite, got -inf"),
        (check_fraction, 0, ValueError, "x must lie strictly between 0 and 1, got 0"),
        (check_fraction, 1.0, ValueError, "x must lie strictly between 0 and 1, got 1.0"),
        (check_fraction, None, TypeError, "x must be a number, got None"),
    ],
)
def test_numbers_of_the_wrong_kind(check, value, error, message):
    with pytest.raises(error, match=re.escape(message)):
        check("x", value)
