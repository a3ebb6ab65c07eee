"""Safety of the compiled backend: in memory, between threads and processes, without Numba."""

import logging
import multiprocessing
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from helpers import assert_close
from torch.utils.data import DataLoader, Dataset

from sikagp import SIKALayer
from sikagp.ops import compilation, compiled, reference, threads
from sikagp.ops.backends import backend_for, use_backend
from sikagp.ops.loops.interpolation import interpolation_backward


def random_bits(*shape):
    """Every bit pattern of float32 is as likely as any other: NaN, infinity and denormals too."""
    return torch.randint(-(2**31), 2**31, shape).to(torch.int32).view(torch.float32)


by_kernel = pytest.mark.parametrize("kernel", ["laplace", "matern32", "matern52"])


@by_kernel
def test_any_bit_pattern_gives_numbers_or_nan(kernel):
    layer = SIKALayer(4, 3, level=6, kernel=kernel, check_finite=False).eval()
    x = random_bits(5000, 4)
    with torch.no_grad():
        q = layer(x)
    broken = ~x.isfinite().all(-1)
    assert broken.sum() > 20
    assert q.mean[~broken].isfinite().all()
    assert q.variance[~broken].isfinite().all()
    assert q.mean[x.isnan().any(-1)].isnan().all()


@by_kernel
def test_training_on_any_bit_pattern_leaves_other_memory_alone(kernel):
    layer = SIKALayer(4, 3, level=6, kernel=kernel, check_finite=False, plan="table")
    q = layer(random_bits(500, 4))
    (q.mean.sum() + q.variance.sum()).backward()
    assert layer.weight_mean.grad.shape == layer.weight_mean.shape


@pytest.mark.parametrize("wild", [-(2**63), 2**63 - 1, -1, 8, 9])
def test_stray_cells_are_clamped_and_write_nothing_outside(wild):
    features, nodes, outputs = 3, 9, 5
    cell = torch.randint(0, nodes - 1, (70, features))
    cell[::3] = wild
    left, right = torch.rand(2, 70, features, 1)
    states, table = (
        torch.randn(features, nodes, 1, outputs),
        torch.randn(features, nodes, 2, 1, 1, outputs),
    )
    d_mean, d_variance = torch.randn(2, 70, outputs)
    guarded = [torch.full((t.numel() + 2000,), 7.0) for t in (states, table)]
    d_states, d_table = (
        g[1000:-1000].view_as(t) for g, t in zip(guarded, (states, table), strict=True)
    )
    inputs = d_mean, d_variance, cell, left, right, states, table
    outputs = torch.empty_like(left), torch.empty_like(right), d_states, d_table
    arrays, targets = [t.numpy() for t in inputs], [t.numpy() for t in outputs]
    parts = arrays[:2], arrays[2:5], arrays[5:], targets[:2], targets[2:]
    interpolation_backward(0, features, (0,), (0,), *map(tuple, parts))
    for guard in guarded:
        assert (guard[:1000] == 7).all()
        assert (guard[-1000:] == 7).all()
    clamped = cell.clamp(0, nodes - 2)
    expected = reference.interpolate_backward(d_mean, d_variance, clamped, *inputs[3:])
    for a, e in zip(outputs, expected, strict=True):
        assert_close(a, e)


@pytest.fixture
def two_threads(monkeypatch):
    monkeypatch.setattr(threads, "_WORTH_A_THREAD", 1)
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


def gradients_of(layer, x):
    layer.zero_grad()
    q = layer(x)
    (q.mean.square().sum() + q.variance.sum()).backward()
    return [q.mean, q.variance, *(p.grad.clone() for p in layer.parameters())]


def test_threads_change_no_bit(either_pool):
    layer, x = SIKALayer(5, 3, level=4, plan="table"), torch.rand(201, 5)
    shared = gradients_of(layer, x)
    torch.set_num_threads(1)
    for a, b in zip(shared, gradients_of(layer, x), strict=True):
        assert torch.equal(a, b)


def test_one_torch_thread_means_no_other_threads(monkeypatch):
    monkeypatch.setattr(threads, "_WORTH_A_THREAD", 1)
    for name in ("_on_torch_threads", "_on_own_threads"):
        monkeypatch.setattr(threads, name, lambda *_: pytest.fail("the work was shared"))
    gradients_of(SIKALayer(5, 3, level=4, plan="table"), torch.rand(20, 5))


@pytest.fixture(params=["torch's threads", "own threads"])
def either_pool(request, two_threads, monkeypatch):
    if request.param == "own threads":
        monkeypatch.setattr(threads, "_gnu_openmp", lambda: None)
    elif threads._gnu_openmp() is None:
        pytest.skip("torch does not run on GNU OpenMP here")


def test_every_part_runs_once(either_pool):
    done = []
    threads.share(lambda start, stop: done.extend(range(start, stop)), 101, 10**6)
    assert sorted(done) == list(range(101))


def test_an_error_in_a_thread_reaches_the_caller(either_pool):
    def loop(start, stop):
        if start > 0:
            raise ArithmeticError("second half")

    with pytest.raises(ArithmeticError, match="second half"):
        threads.share(loop, 10, 10**6)


def test_several_callers_at_once(either_pool):
    layer, x = SIKALayer(5, 3, level=4).eval(), torch.rand(300, 5)
    with torch.no_grad():
        expected = layer(x).mean

    def predict(_):
        with torch.no_grad():
            return layer(x).mean

    with ThreadPoolExecutor(4) as pool:
        assert all(torch.equal(m, expected) for m in pool.map(predict, range(40)))


def predict_in_child(layer, x, queue):
    with torch.no_grad():
        queue.put(layer(x).mean.tolist())


def test_prediction_after_fork(two_threads):
    layer, x = SIKALayer(5, 3, level=4).eval(), torch.rand(30, 5)
    with torch.no_grad():
        expected = layer(x).mean  # the parent's threads are running by now
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    child = context.Process(target=predict_in_child, args=(layer, x, queue))
    child.start()
    assert queue.get() == expected.tolist()
    child.join()
    assert child.exitcode == 0


class Predictions(Dataset):
    def __init__(self, layer, x):
        self.layer, self.x = layer, x

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        with torch.no_grad():
            return self.layer(self.x[i]).mean


def test_prediction_in_loader_workers(two_threads):
    layer, x = SIKALayer(5, 3, level=4).eval(), torch.rand(12, 5)
    with torch.no_grad():
        expected = layer(x).mean
    loader = DataLoader(Predictions(layer, x), batch_size=4, num_workers=2)
    assert_close(torch.cat(list(loader)), expected)


def test_without_numba_one_warning_and_the_same_numbers():
    script = """
import sys, warnings
sys.modules["numba"] = None
import torch
from sikagp import SIKALayer
torch.manual_seed(0)
layer = SIKALayer(2, 1, level=3).eval()
with warnings.catch_warnings(record=True) as caught, torch.no_grad():
    warnings.simplefilter("always")
    means = [layer(torch.full((1, 2), 0.3)).mean.item() for _ in range(3)]
told = [str(w.message) for w in caught if "Numba cannot be imported" in str(w.message)]
print(len(told), repr(means[0]))
"""
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    told, mean = run.stdout.split()
    assert told == "1"
    layer = SIKALayer(2, 1, level=3).eval()
    with torch.no_grad():
        assert float(mean) == pytest.approx(layer(torch.full((1, 2), 0.3)).mean.item(), abs=1e-6)


def test_backends_are_chosen_by_name(monkeypatch):
    layer, x = SIKALayer(2, 1, level=3, plan="table"), torch.rand(4, 2)
    with use_backend("reference"):
        monkeypatch.setattr(compiled, "interpolate", lambda *a: pytest.fail("not the reference"))
        layer(x)
    monkeypatch.setenv("SIKAGP_BACKEND", "reference")
    layer(x)
    monkeypatch.setenv("SIKAGP_BACKEND", "fortran")
    with pytest.raises(ValueError, match=r"SIKAGP_BACKEND must be one of.*got 'fortran'"):
        layer(x)
    with pytest.raises(ValueError, match="backend must be one of"), use_backend("fortran"):
        pass


def test_compiled_backend_refuses_other_types():
    with use_backend("compiled"), pytest.raises(ValueError, match="float32 or float64 on the CPU"):
        backend_for(torch.zeros(1, dtype=torch.float16))


def test_slow_compilation_is_announced(monkeypatch, caplog):
    monkeypatch.setattr(compilation, "_SECONDS_BEFORE_NOTICE", 0.01)
    with caplog.at_level(logging.WARNING, logger="sikagp"):
        compilation._compile(lambda start, stop: time.sleep(0.2))
    assert "compiling" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="sikagp"):
        compilation._compile(lambda start, stop: None)
    assert not caplog.text
