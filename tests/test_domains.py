"""Where the grid lies: fixed, fitted and running intervals."""

import copy

import pytest
import torch
from helpers import assert_close, doubles, random_layer

from sikagp import Domain, RunningDomain
from sikagp.domains import as_domain


def test_interval_maps_to_the_unit_interval_and_beyond():
    unit = Domain(-1.0, 3.0)(doubles([[-1.0, 0.0], [3.0, 7.0]]))
    assert_close(unit, doubles([[0.0, 0.25], [1.0, 2.0]]))


def test_features_may_have_their_own_intervals():
    domain = Domain(doubles([0.0, -2.0]), doubles([1.0, 2.0]))
    assert_close(domain(doubles([[0.5, 1.0]])), doubles([[0.5, 0.75]]))
    assert_close(domain.width, doubles([1.0, 4.0]))


def test_one_bound_may_serve_all_features():
    assert_close(Domain(0.0, doubles([1.0, 4.0])).low, doubles([0.0, 0.0]))


def test_integers_are_fine_as_bounds():
    assert_close(Domain(0, 4)(torch.tensor([[1.0]])), torch.tensor([[0.25]]))


@pytest.mark.parametrize(
    ("low", "high", "message"),
    [
        (1.0, 1.0, "low < high for every feature, got 1.0 and 1.0"),
        (2.0, -1.0, "got 2.0 and -1.0"),
        (torch.tensor([0.0, 3.0]), torch.tensor([1.0, 2.0]), "low < high for every feature"),
        (0.0, float("inf"), r"high must be one finite number.*inf"),
        (float("nan"), 1.0, r"low must be one finite number.*nan"),
        (torch.zeros(2, 2), 1.0, r"low must be .* one per feature; got shape \(2, 2\)"),
    ],
)
def test_bad_bounds_are_refused(low, high, message):
    with pytest.raises(ValueError, match=message):
        Domain(low, high)


def test_a_python_number_keeps_its_precision_in_float64():
    layer = random_layer(1, 1, domain=(0.1, 0.9))
    assert layer.domain.low.item() == 0.1
    assert layer.domain.high.item() == 0.9


def test_fit_covers_the_data_with_a_margin():
    x = doubles([[0.0, 5.0], [2.0, 5.0], [1.0, 5.0]])
    domain = Domain.fit(x, margin=0.25)
    assert_close(domain.low, doubles([-0.5, 4.5]))
    assert_close(domain.high, doubles([2.5, 5.5]))


def test_fit_takes_any_batch_shape():
    x = torch.randn(4, 5, 2, dtype=torch.float64)
    for actual, expected in zip(
        Domain.fit(x).buffers(), Domain.fit(x.flatten(0, 1)).buffers(), strict=True
    ):
        assert_close(actual, expected)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(0, 2), "got 0 rows, 0 with"),
        (torch.tensor([[0.0, float("nan")], [1.0, 2.0]]), "got 2 rows, 1 with NaN or infinity"),
    ],
)
def test_fit_refuses_what_has_no_range(x, message):
    with pytest.raises(ValueError, match=f"at least one row, all of finite numbers; {message}"):
        Domain.fit(x)


def test_running_domain_starts_with_the_first_batch_and_then_averages():
    domain = RunningDomain(1, reach=2.0, momentum=0.25)
    first, second = torch.tensor([[0.0], [2.0]]), torch.tensor([[6.0], [10.0]])
    domain(first)
    assert_close(domain.low, torch.tensor([1.0 - 2.0]))
    assert_close(domain.high, torch.tensor([1.0 + 2.0]))
    domain(second)
    mean, variance = 0.75 * 1.0 + 0.25 * 8.0, 0.75 * 1.0 + 0.25 * 4.0
    assert_close(domain.low, torch.tensor([mean - 2 * variance**0.5]))
    assert_close(domain.high, torch.tensor([mean + 2 * variance**0.5]))
    assert int(domain.num_batches) == 2


def test_running_domain_maps_by_the_running_interval_not_the_batch_s():
    domain = RunningDomain(1, reach=2.0, momentum=0.25)
    domain(torch.tensor([[0.0], [2.0]]))
    unit = domain(torch.tensor([[6.0], [10.0]]))
    mean, spread = 2.75, 2 * 1.75**0.5
    expected = (torch.tensor([[6.0], [10.0]]) - (mean - spread)) / (2 * spread)
    assert_close(unit, expected)


def test_running_domain_is_frozen_in_evaluation_mode():
    domain = RunningDomain(2).eval()
    before = copy.deepcopy(domain.state_dict())
    domain(torch.randn(8, 2))
    assert all(torch.equal(value, before[name]) for name, value in domain.state_dict().items())


def test_running_domain_survives_constant_features_and_empty_batches():
    domain = RunningDomain(1, reach=3.0)
    domain(torch.zeros(0, 1))
    assert int(domain.num_batches) == 0
    domain(torch.full((4, 1), 7.0))
    assert_close(domain.low, torch.tensor([4.0]))
    assert_close(domain.high, torch.tensor([10.0]))


def test_running_domain_travels_in_the_state_dict():
    source, target = RunningDomain(2), RunningDomain(2)
    source(torch.randn(16, 2) * 4 + 1)
    target.load_state_dict(source.state_dict())
    x = torch.randn(5, 2)
    assert_close(target.eval()(x), source.eval()(x))


@pytest.mark.parametrize(("reach", "momentum"), [(0.0, 0.1), (3.0, 0.0), (3.0, 1.5)])
def test_running_domain_refuses_odd_settings(reach, momentum):
    with pytest.raises(ValueError, match=rf"got {reach} and {momentum}"):
        RunningDomain(1, reach=reach, momentum=momentum)


def test_as_domain_accepts_pairs_and_domains(as_users_run):
    assert_close(as_domain(Domain(0.0, 2.0), 3).high, doubles(2.0))
    assert_close(as_domain((0.0, 2.0), 3).high, doubles(2.0))
    with pytest.raises(ValueError, match="bounds for 2 features, the layer has 3"):
        as_domain((torch.zeros(2), torch.ones(2)), 3)
    with pytest.raises(TypeError, match=r"must be \(low, high\) or a Domain, got 5"):
        as_domain(5, 3)


def test_layers_do_not_share_a_domain():
    domain = RunningDomain(2)
    first, second = (random_layer(domain=domain, dtype=torch.float32) for _ in range(2))
    first(torch.randn(8, 2) + 5)
    assert_close(second.domain.low, torch.full((2,), -3.0))
    assert_close(domain.low, torch.full((2,), -3.0))
    assert first.domain.low.min() > -3


def test_lengthscale_is_in_units_of_the_raw_input():
    narrow = random_layer(1, 1, domain=(0.0, 1.0), lengthscale=0.5)
    wide = random_layer(1, 1, domain=(-2.0, 6.0), lengthscale=4.0)
    wide.load_state_dict({**narrow.state_dict(), **wide.domain.state_dict(prefix="domain.")})
    wide.lengthscale = 4.0
    x = torch.rand(20, 1, dtype=torch.float64) * 2 - 0.5
    assert_close(wide(8 * x - 2).mean, narrow(x).mean)
    assert_close(wide(8 * x - 2).variance, narrow(x).variance)


def test_rows_that_are_not_finite_leave_the_running_interval_alone():
    clean, dirty = RunningDomain(2), RunningDomain(2)
    x = torch.randn(20, 2)
    clean.update(x)
    dirty.update(torch.cat([x, torch.tensor([[float("nan"), 1.0], [2.0, float("inf")]])]))
    dirty.update(torch.full((3, 2), float("nan")))
    assert_close(dirty.low, clean.low)
    assert_close(dirty.high, clean.high)
    assert dirty.num_batches == 1
