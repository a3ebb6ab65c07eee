"""Nodes at given places and at quantiles: the same laws as on even grids."""

import math

import numpy as np
import pytest
import torch
from helpers import PLANS, assert_close, doubles, random_layer, randomize
from hypothesis import given
from hypothesis import strategies as st

from sikagp import DeepGP, Domain, NodeDomain, SIKALayer
from sikagp.ops.backends import use_backend

KERNELS = ("laplace", "matern32", "matern52", "brownian")
by_kernel = pytest.mark.parametrize("kernel", KERNELS)
by_backend = pytest.mark.parametrize("backend", ["reference", "compiled"])


def skewed(rows=200, features=2):
    return torch.randn(rows, features, dtype=torch.float64).exp()


def uneven_layer(kernel, *, level=3, **options):
    options = {"residual": "full", "domain": Domain.quantiles(skewed(), level=3), **options}
    if kernel != "brownian":
        options["lengthscale"] = 1.3
    return random_layer(2, 3, level=level, kernel=kernel, **options)


def points(rows=40):
    return torch.rand(rows, 2, dtype=torch.float64) * 8 - 1


def covariance_of_states(kernel, x, y, lengthscale):
    """Cov of (f, f', ..) at x and y by differentiating the kernel's closed form."""
    s = {"laplace": 1, "matern32": 2, "matern52": 3}[kernel]
    scale = math.sqrt(2 * s - 1) / lengthscale

    def k(distance):
        t = scale * distance.abs()
        return {1: 1, 2: 1 + t, 3: 1 + t + t**2 / 3}[s] * torch.exp(-t)

    blocks = torch.zeros(len(x), s, len(y), s, dtype=torch.float64)
    for p in range(len(x)):
        for q in range(len(y)):
            far = x[p] - y[q]
            # at zero distance, odd derivatives vanish and even ones are those from the right
            distance = far.clone() if far != 0 else doubles(1e-300)
            distance.requires_grad_()
            terms = [k(distance)]
            for _ in range(2 * s - 2):
                terms += torch.autograd.grad(terms[-1], distance, create_graph=True)
            for i in range(s):
                for j in range(s):
                    zero = far == 0 and (i + j) % 2
                    blocks[p, i, q, j] = 0 if zero else (-1) ** j * terms[i + j].detach()
    return blocks.flatten(2).flatten(0, 1)


@by_backend
@pytest.mark.parametrize("kernel", ["laplace", "matern32", "matern52"])
def test_marginals_are_those_of_a_dense_gp_on_states(kernel, backend):
    """A dense GP that conditions on the states at the nodes, inside and beyond the grid."""
    nodes = doubles([-1.0, -0.2, 0.1, 0.5, 2.0])
    layer = randomize(
        SIKALayer(1, 1, level=2, kernel=kernel, lengthscale=0.8, domain=NodeDomain(nodes),
                  bias=False, dtype=torch.float64)
    )  # fmt: skip
    x = torch.cat([torch.linspace(-3, 4, 23, dtype=torch.float64), nodes])
    s = layer.kernel.state_size
    known = covariance_of_states(kernel, nodes, nodes, 0.8)
    across = covariance_of_states(kernel, x, nodes, 0.8)[::s]
    factor = layer.features(nodes.unsqueeze(-1))
    with use_backend(backend), torch.no_grad():
        q = layer.eval()(x.unsqueeze(-1))
        phi = layer.features(x.unsqueeze(-1))
    gain = torch.linalg.solve(known, across.T).T
    dense = torch.zeros(len(x), s * 5, dtype=torch.float64).scatter_(
        1, phi.index[:, 0], phi.values[:, 0]
    )
    assert factor.values.shape[-1] == s * 4
    assert_close(dense @ dense.T, gain @ across.T)
    missing = 1 - (gain * across).sum(-1)
    mean, scale = layer.weight_mean[0, :, 0], layer.weight_scale[0, :, 0]
    variance = layer.variance[0]
    assert_close(q.mean[:, 0], variance.sqrt() * dense @ mean)
    assert_close(q.variance[:, 0], variance * (dense.square() @ scale.square() + missing))


@by_kernel
def test_plans_and_backends_agree_in_values_and_gradients(kernel):
    layer, results = uneven_layer(kernel), []
    for backend in ("compiled", "reference"):
        for plan in PLANS:
            layer.plan = plan
            layer.zero_grad()
            x = points().clamp(0.05, 6.0) if kernel == "brownian" else points()
            x = (results[0][0].detach() if results else x).requires_grad_()
            with use_backend(backend):
                q = layer(x)
                (q.mean.sin().sum() + q.variance.sqrt().sum()).backward()
            results.append([x, q.mean, q.variance, x.grad, *(p.grad for p in layer.parameters())])
            results[-1] = [part.clone() for part in results[-1]]
    for other in results[1:]:
        for a, b in zip(results[0], other, strict=True):
            assert_close(a, b)


@by_kernel
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cached_prediction_is_the_uncached_evaluation(kernel, dtype):
    layer, x = uneven_layer(kernel, dtype=dtype), points().to(dtype)
    expected = layer(x)
    with torch.no_grad():
        actual = layer.eval()(x)
    assert_close(actual.mean, expected.mean)
    assert_close(actual.variance, expected.variance)


@by_kernel
def test_refining_changes_neither_mean_nor_kl(kernel):
    layer, x = uneven_layer(kernel, level=2), points()
    before, kl = layer(x), layer.kl_divergence()
    for level in (3, 5):  # up to the domain's own nodes, and beyond them
        coarse = layer.grid.nodes
        layer.refine(level)
        assert_close(layer.grid.nodes[:, :: 2**level // (coarse.shape[1] - 1)], coarse)
        assert_close(layer(x).mean, before.mean)
        assert_close(layer(x).variance, before.variance)
        assert_close(layer.kl_divergence(), kl)


def test_paths_have_the_moments_of_the_marginals():
    layer, x = uneven_layer("matern32", residual="none"), points(5)
    draws = layer.sample(x, 4000, method="path")
    q = layer(x)
    assert (draws.mean(0) - q.mean).abs().max() < 6 * q.stddev.max() / 4000**0.5
    assert (draws.var(0) / q.variance - 1).abs().max() < 0.2


def test_quantiles_follow_the_data():
    x = skewed(1001, 1)
    nodes = Domain.quantiles(x, level=3, evenness=0.0).positions[0]
    assert_close(nodes[1:-1], torch.quantile(x[:, 0], torch.arange(1, 8).double() / 8))
    ends = Domain.fit(x)
    assert_close(nodes[[0, -1]], torch.cat([ends.low, ends.high]))


@pytest.mark.parametrize("rows", [1, 2, 50])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_repeated_values_still_give_increasing_nodes(rows, dtype):
    x = torch.stack([torch.zeros(rows), torch.arange(rows) % 2, torch.arange(rows)], dim=-1)
    domain = Domain.quantiles(x.to(dtype), level=6)
    layer = SIKALayer(3, 1, level=6, domain=domain, dtype=dtype)
    assert (layer.grid.nodes.diff(dim=-1) > 0).all()
    assert layer(x.to(dtype)).mean.isfinite().all()


def test_nodes_that_do_not_increase_are_refused():
    with pytest.raises(ValueError, match=r"2 of 2 rows do not .* evenness above 0"):
        Domain.quantiles(torch.zeros(9, 2), evenness=0.0)
    close = NodeDomain(doubles([0.0, 1e-9, 1.0]) + 1)
    with pytest.raises(ValueError, match=r"1 of 1 rows do not in torch\.float32"):
        SIKALayer(1, 1, level=1, domain=close, dtype=torch.float32)
    with pytest.raises(ValueError, match=r"2\*\*k \+ 1 nodes, k >= 1; got \(4,\)"):
        NodeDomain(torch.arange(4.0))
    with pytest.raises(ValueError, match="evenness must lie in"):
        Domain.quantiles(torch.zeros(9, 2), evenness=1.5)
    with pytest.raises(ValueError, match="bounds for 2 features, the layer has 3"):
        SIKALayer(3, 1, domain=Domain.quantiles(skewed()))


def test_moving_the_nodes_drops_the_cached_table():
    layer, x = uneven_layer("matern32").eval(), points(4)
    with torch.no_grad():
        before = layer(x).mean
        layer.domain.positions[:, 1:-1].sub_(0.01)
        assert (layer(x).mean - before).abs().max() > 1e-6


@pytest.mark.parametrize("rows", [None, 2])
def test_saving_and_loading_keeps_the_nodes(tmp_path, rows):
    domain = Domain.quantiles(skewed(), level=2)
    domain = domain if rows else NodeDomain(domain.positions[0])
    model = DeepGP((2, 3, 1), level=3, kernel="matern52", domain=domain).eval()
    model.save_pretrained(tmp_path / "model")
    loaded = DeepGP.from_pretrained(tmp_path / "model")
    x = points().float()
    with torch.no_grad():
        pairs = zip(model.layers, loaded.layers, strict=True)
        for own, other in pairs:
            rows = x if own.in_features == 2 else torch.randn(4, 3)
            assert torch.equal(own(rows).mean, other(rows).mean)
    assert torch.equal(model.layers[0].grid.nodes, loaded.layers[0].grid.nodes)


def test_selecting_one_feature():
    domain = Domain.quantiles(skewed())
    assert torch.equal(domain.select(1).positions[0], domain.positions[1])
    assert Domain(0.0, doubles([1.0, 4.0])).select(1).high == 4
    assert "nodes=129" in repr(domain)


@given(
    values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30),
    level=st.integers(1, 5),
    evenness=st.floats(0.05, 1.0),
)
def test_nodes_are_a_mixture_of_numpy_s_quantiles_and_an_even_grid(values, level, evenness):
    x = doubles(values).unsqueeze(-1)
    domain = Domain.quantiles(x, level=level, evenness=evenness)
    share = np.linspace(0, 1, 2**level + 1)
    ends = Domain.fit(x)
    even = float(ends.low) + share * float(ends.high - ends.low)
    expected = (1 - evenness) * np.quantile(values, share) + evenness * even
    np.testing.assert_allclose(domain.positions[0, 1:-1], expected[1:-1], atol=1e-9)
    assert_close(domain.positions[0, [0, -1]], torch.cat([ends.low, ends.high]))


@given(stored=st.integers(1, 5), level=st.integers(1, 6))
def test_grids_of_all_levels_are_nested(stored, level):
    nodes = torch.rand(2, 2**stored + 1, dtype=torch.float64).add(0.1).cumsum(-1)
    domain = NodeDomain(nodes)
    coarse, fine = (domain.grid(each).nodes for each in (level, level + 1))
    assert_close(fine[:, ::2], coarse)
    assert (fine.diff(dim=-1) > 0).all()
    assert_close(fine[:, [0, -1]], doubles([[0.0, 1.0], [0.0, 1.0]]))
    unit = domain(nodes[:, :: 2 ** max(0, stored - level)].T).T
    assert_close(domain.grid(level).nodes[:, :: 2 ** max(0, level - stored)], unit)
