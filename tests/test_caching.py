"""The table of evaluation mode: reused while nothing changes, right as soon as something does."""

import copy
import io
import pickle

import pytest
import torch
from helpers import assert_close, doubles, random_layer

from sikagp import Domain, RunningDomain, SIKALayer, ops
from sikagp.caching import TensorCache

X = doubles([[-0.4, 0.3], [0.1, 0.6], [0.55, 0.55], [0.8, 1.3]])


def cached_layer(**options) -> SIKALayer:
    """A layer in evaluation mode whose table has just been used."""
    layer = random_layer(level=5, plan="table", **options).eval()
    with torch.no_grad():
        layer(X)
    return layer


def moments(layer: SIKALayer, plan: str = "table") -> torch.Tensor:
    layer.plan = plan
    with torch.no_grad():
        q = layer(X)
    layer.plan = "table"
    return torch.cat([q.mean, q.variance])


def load(layer, **options):
    layer.load_state_dict(random_layer(level=5).state_dict(), **options)


def step(layer, optimiser):
    optimiser = optimiser(layer.parameters(), lr=0.1)
    layer(X).rsample().square().sum().backward()
    optimiser.step()


@torch.no_grad()
def add_in_place(layer, name):
    getattr(layer, name).add_(0.5)


@torch.no_grad()
def add_to_one_entry(layer):
    layer.weight_mean[0, 0, 1] += 0.5


def add_to_data(layer, name):
    getattr(layer, name).data.add_(0.5)


def replace_data(layer):
    layer.weight_mean.data = torch.randn_like(layer.weight_mean)


@torch.no_grad()
def move_domain(layer):
    layer.domain.high.add_(1.0)


def replace_domain(layer):
    layer.domain = Domain(doubles(-1.0), doubles(2.0))


def replace_parameter(layer):
    layer.weight_mean = torch.nn.Parameter(torch.randn_like(layer.weight_mean))


def train_and_return(layer):
    layer.train()
    layer.weight_mean.data[0, 0, 0] += 1.0
    layer.eval()


NAMES = ("weight_mean", "raw_weight_scale", "log_lengthscale", "log_variance", "bias_mean")
CHANGES = {
    "load_state_dict": load,
    "load_state_dict(assign=True)": lambda layer: load(layer, assign=True),
    "sgd": lambda layer: step(layer, torch.optim.SGD),
    "adam": lambda layer: step(layer, torch.optim.Adam),
    "one entry in place": add_to_one_entry,
    "property": lambda layer: setattr(layer, "lengthscale", 0.2),
    "new data": replace_data,
    "new parameter": replace_parameter,
    "domain buffer": move_domain,
    "new domain": replace_domain,
    "train and eval": train_and_return,
    **{f"{name} in place": lambda layer, name=name: add_in_place(layer, name) for name in NAMES},
    **{f"{name}.data": lambda layer, name=name: add_to_data(layer, name) for name in NAMES},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES.keys())
def test_table_is_right_after(change):
    layer = cached_layer()
    before = moments(layer)
    change(layer)
    after = moments(layer)
    assert_close(after, moments(layer, "dense"))
    assert (after - before).abs().max() > 1e-3


def test_table_is_right_after_a_change_of_type():
    layer = cached_layer()
    before = moments(layer)
    after = moments(layer.float())
    assert after.dtype == torch.float32
    assert_close(after, before)
    assert moments(layer.double()).dtype == torch.float64


def test_table_is_right_when_the_running_domain_moved():
    layer = cached_layer(domain=RunningDomain(2))
    before = moments(layer)
    layer.train()(3 * X)
    layer.eval()
    assert_close(moments(layer), moments(layer, "dense"))
    assert (moments(layer) - before).abs().max() > 1e-3


def via_pickle(layer):
    return pickle.loads(pickle.dumps(layer))


def via_file(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, via_pickle, via_file])
@pytest.mark.parametrize("kernel", ["laplace", "brownian", "bridge"])
def test_copies_are_equal_and_independent(duplicate, kernel):
    layer = cached_layer(kernel=kernel)
    expected = moments(layer)
    twin = duplicate(layer)
    assert torch.equal(moments(twin), expected)
    with torch.no_grad():
        twin.weight_mean.add_(1.0)
    assert_close(moments(twin), moments(twin, "dense"))
    assert torch.equal(moments(layer), expected)


def test_tables_are_not_pickled():
    layer = random_layer(level=8, plan="table").eval()
    before = len(pickle.dumps(layer))
    moments(layer)
    assert len(pickle.dumps(layer)) == before


@pytest.fixture
def table_builds(monkeypatch):
    """Count how often node tables are built."""
    calls = []
    original = ops.node_states

    def counted(*args):
        calls.append(1)
        return original(*args)

    monkeypatch.setattr(ops, "node_states", counted)
    return calls


@pytest.mark.parametrize("plan", ["table", "auto"])
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_table_is_built_once_while_nothing_changes(table_builds, context, plan):
    layer = random_layer(plan=plan).eval()
    with context():
        for rows in (X, X[:1], X.flip(0)):
            layer(rows)
    assert len(table_builds) == 1
    with torch.no_grad():
        layer(X)
    assert len(table_builds) == 1


def test_frozen_layers_reuse_their_table_with_autograd(table_builds):
    layer = random_layer(plan="table").eval().requires_grad_(False)
    x = X.clone().requires_grad_()
    for _ in range(3):
        layer(x).mean.sum().backward()
    assert len(table_builds) == 1


def test_training_keeps_no_table(table_builds):
    layer = random_layer(plan="table").train()
    with torch.no_grad():
        before = layer(X).mean
        layer.weight_mean.data[0, 5] += 1.0  # an edit that a cache might miss
        assert not torch.equal(layer(X).mean, before)
    assert len(table_builds) == 0


def test_clear_cache_forgets(table_builds):
    layer = cached_layer()
    layer.clear_cache()
    moments(layer)
    assert len(table_builds) == 2


def test_a_table_made_in_inference_mode_serves_autograd():
    layer = random_layer(plan="table").eval().requires_grad_(False)
    with torch.inference_mode():
        layer(X)
    x = X.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(layer(x).mean.sum(), x)
    layer.plan = "dense"
    (expected,) = torch.autograd.grad(layer(x).mean.sum(), x)
    assert_close(gradient, expected)


def test_parameters_get_gradients_in_evaluation_mode():
    layer = cached_layer()
    q = layer(X)
    (q.mean.sum() + q.variance.sum()).backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in layer.parameters())


def test_layers_made_in_inference_mode_work():
    with torch.inference_mode():
        layer = random_layer(plan="table").eval()
        first = layer(X).mean
        layer.weight_mean.add_(1.0)
        second = layer(X).mean
        layer.plan = "dense"
        assert_close(second, layer(X).mean)
    assert not torch.equal(first, second)


def test_cache_holds_until_a_source_changes():
    cache, source, computed = TensorCache(), torch.zeros(3), []

    def compute():
        computed.append(source.sum().item())
        return len(computed)

    assert [cache.get([source], compute) for _ in range(3)] == [1, 1, 1]
    source += 1
    assert [cache.get([source], compute) for _ in range(2)] == [2, 2]
    assert cache.get([source.clone()], compute) == 3
    assert cache.get([source, source], compute) == 4
    cache.clear()
    assert cache.get([source, source], compute) == 5


@pytest.mark.parametrize("part", [slice(0, 500), slice(500, 1000), slice(300, 400)])
def test_edits_through_data_are_noticed_if_they_touch_more_than_a_few_entries(part):
    cache, source, count = TensorCache(), torch.zeros(1000), iter(range(9))
    assert cache.get([source], lambda: next(count)) == 0
    assert cache.get([source], lambda: next(count)) == 0
    source.data[part] += 1  # leaves no trace but the entries themselves
    assert cache.get([source], lambda: next(count)) == 1
