"""Half precision: stored and fed narrow, computed wide."""

import copy
import os
from collections.abc import Iterator

import pytest
import torch
from helpers import PLANS, assert_close, random_layer, tenth_of_the_smallest

from sikagp import SIKALayer, precision
from sikagp.ops.backends import use_backend
from sikagp.precision import at_least_float32, fastest_precision, flush_denormals, full_precision

HALVES = [torch.bfloat16, torch.float16]
by_half = pytest.mark.parametrize("half", HALVES, ids=["bfloat16", "float16"])


def layer_and_input(**options) -> tuple[SIKALayer, torch.Tensor]:
    layer = random_layer(level=4, dtype=torch.float32, lengthscale=0.5, **options)
    return layer, torch.rand(20, 2) * 1.5 - 0.25


def autocast():
    return torch.autocast("cpu", dtype=torch.bfloat16)


@pytest.mark.usefixtures("keep_denormals")
def test_denormals_can_be_flushed():
    assert tenth_of_the_smallest() > 0
    flush_denormals()
    assert tenth_of_the_smallest() == 0


@pytest.mark.parametrize(
    ("narrow", "wide"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_halves_are_widened(narrow, wide):
    assert at_least_float32(torch.ones(2, dtype=narrow)).dtype == wide


@pytest.mark.parametrize(
    ("accelerator", "processor", "graphics", "expected"),
    [
        ("cpu", {"avx512_bf16": True}, None, "bf16-mixed"),
        ("cpu", {"avx512_bf16": False, "amx_bf16": False}, True, "32-true"),
        ("cpu", {}, None, "32-true"),
        ("auto", {"amx_bf16": True}, None, "bf16-mixed"),
        ("auto", {"amx_bf16": True}, False, "32-true"),
        ("cuda", {}, True, "bf16-mixed"),
        ("mps", {"bf16": True}, None, "32-true"),
    ],
)
def test_bfloat16_is_used_where_a_device_has_it(
    monkeypatch, accelerator, processor, graphics, expected
):
    monkeypatch.setattr(precision, "_multiplies_bfloat16", lambda: True)
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: processor, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: graphics is not None)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: graphics)
    assert fastest_precision(accelerator) == expected


@pytest.fixture
def untried() -> Iterator[None]:
    precision._multiplies_bfloat16.cache_clear()
    yield
    precision._multiplies_bfloat16.cache_clear()


@pytest.mark.parametrize(
    ("product", "expected"),
    [
        ("import torch; torch.ones(2)", "bf16-mixed"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", "32-true"),
    ],
)
def test_instructions_are_announced_and_tried(untried, monkeypatch, product, expected):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"amx_bf16": True}, raising=False)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision, "_PRODUCT", product)
    assert fastest_precision("cpu") == expected


def test_the_product_that_is_tried_runs(untried, monkeypatch):
    monkeypatch.setitem(os.environ, "ONEDNN_MAX_CPU_ISA", "AVX2")
    assert precision._multiplies_bfloat16()


def test_a_processor_of_which_torch_knows_nothing_computes_in_full(monkeypatch):
    monkeypatch.delattr(torch.cpu, "get_capabilities", raising=False)
    assert fastest_precision("cpu") == "32-true"


def test_full_precision_suspends_autocast():
    a = torch.randn(4, 4)
    with autocast():
        assert (a @ a).dtype == torch.bfloat16
        with full_precision(a.device):
            assert (a @ a).dtype == torch.float32
        assert (a @ a).dtype == torch.bfloat16


@by_half
@pytest.mark.parametrize("plan", PLANS)
def test_half_layers_compute_in_float32(half, plan):
    layer, x = layer_and_input(plan=plan)
    narrow, x = layer.to(half), x.to(half)
    wide = copy.deepcopy(narrow).float()
    q, expected = narrow(x), wide(x.float())
    assert q.mean.dtype == q.variance.dtype == torch.float32
    assert_close(q.mean, expected.mean)
    assert_close(q.variance, expected.variance)
    assert_close(narrow.kl_divergence(), wide.kl_divergence())


@by_half
def test_rounding_to_half_costs_no_more_than_its_precision(half):
    layer, x = layer_and_input()
    expected = layer(x)
    q = copy.deepcopy(layer).to(half)(x.to(half))
    assert_close(q.mean, expected.mean, dtype=torch.bfloat16)
    assert_close(q.variance, expected.variance, dtype=torch.bfloat16)


@by_half
@pytest.mark.parametrize("plan", PLANS)
def test_half_gradients_are_finite_and_close(half, plan):
    layer, x = layer_and_input(plan=plan)
    narrow, x = layer.to(half), x.to(half)
    wide = copy.deepcopy(narrow).float()
    for model, rows in ((narrow, x), (wide, x.float())):
        q = model(rows)
        (q.mean.sum() + q.variance.sum()).backward()
    for parameter, expected in zip(narrow.parameters(), wide.parameters(), strict=True):
        assert parameter.grad.dtype == half
        assert_close(parameter.grad, expected.grad)


@by_half
def test_float32_layers_take_half_inputs(half):
    layer, x = layer_and_input()
    x = x.to(half)
    assert_close(layer(x).mean, layer(x.float()).mean, dtype=torch.float32)


@by_half
@pytest.mark.parametrize("extreme", [1e-3, 1e3])
def test_half_layers_are_finite_at_extreme_lengthscales(half, extreme):
    layer = random_layer(1, 1, level=10, lengthscale=extreme, dtype=half)
    q = layer(torch.tensor([[-6e4], [-0.1], [0.0], [0.3], [1.0], [1.1], [6e4]], dtype=half))
    assert bool(q.mean.isfinite().all() and q.variance.isfinite().all())
    assert bool((q.variance > 0).all())


@by_half
def test_half_domains_keep_their_ends(half):
    layer = random_layer(1, 1, domain=(-0.1, 3.0), dtype=half)
    low, high = layer.domain.low.float(), layer.domain.high.float()
    unit = layer.domain(torch.stack([low, high])[:, None])
    assert_close(unit.flatten(), torch.tensor([0.0, 1.0]))


@pytest.mark.parametrize("plan", PLANS)
def test_autocast_changes_nothing(plan):
    layer, x = layer_and_input(plan=plan)
    expected = layer(x)
    with autocast(), use_backend("reference"):
        q, kl, features = layer(x), layer.kl_divergence(), layer.features(x)
    assert q.mean.dtype == torch.float32
    assert_close(q.mean, expected.mean)
    assert_close(q.variance, expected.variance)
    assert_close(kl, layer.kl_divergence())
    assert_close(features.values, layer.features(x).values)


@pytest.mark.parametrize("method", ["local", "flipout", "path"])
def test_autocast_does_not_round_draws(method):
    layer, x = layer_and_input()
    expected = layer.sample(x, 4, method=method, generator=torch.Generator().manual_seed(0))
    with autocast(), use_backend("reference"):
        draws = layer.sample(x, 4, method=method, generator=torch.Generator().manual_seed(0))
    assert_close(draws, expected, dtype=torch.float32)


def test_a_layer_can_train_under_autocast():
    layer, x = layer_and_input()
    optimiser = torch.optim.SGD(layer.parameters(), lr=1e-2)
    losses = []
    for _ in range(5):
        with autocast():
            loss = (layer(x).mean - 1).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    assert all(p.dtype == torch.float32 for p in layer.parameters())
