"""Plots show the numbers they are given: data drawn, labels, and the Axes returned."""

from collections.abc import Iterator

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import pyplot
from matplotlib.axes import Axes
from predictions import class_rows, gaussians
from scipy import stats

from sikagp import metrics, plots

mpl.use("Agg")


@pytest.fixture(autouse=True)
def _close_figures() -> Iterator[None]:
    yield
    pyplot.close("all")


def line(ax: Axes, label: str) -> np.ndarray:
    """Points of the line with this label, shape (points, 2)."""
    (found,) = [each for each in ax.lines if each.get_label() == label]
    return found.get_xydata()


def band(ax: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper edge of the filled band with this label."""
    (found,) = [each for each in ax.collections if each.get_label() == label]
    corners = found.get_paths()[0].vertices
    rows = [corners[corners[:, 0] == x, 1] for x in np.unique(corners[:, 0])]
    return np.array([r.min() for r in rows]), np.array([r.max() for r in rows])


def bars(ax: Axes, label: str) -> np.ndarray:
    """Left edge, bottom and height of the bars with this label, shape (bars, 3)."""
    (found,) = [each for each in ax.containers if each.get_label() == label]
    return np.array([(b.get_x(), b.get_y(), b.get_height()) for b in found])


def legend(ax: Axes) -> set[str]:
    return {text.get_text() for text in ax.get_legend().get_texts()}


@pytest.mark.parametrize(
    ("draw", "labels"),
    [
        (lambda: plots.plot_reliability(*class_rows(40)), ("confidence", "accuracy")),
        (lambda: plots.plot_coverage(torch.rand(40)), ("nominal coverage", "observed coverage")),
        (
            lambda: plots.plot_entropy(torch.rand(9), torch.rand(9)),
            ("predictive entropy (nats)", "share of rows"),
        ),
        (lambda: plots.plot_fit([0, 1], [0, 1], [1, 1]), ("x", "y")),
        (
            lambda: plots.plot_component([0, 1], [0, 1], [1, 1], name="age", level=0.8),
            ("age", "effect (80% band)"),
        ),
    ],
    ids=["reliability", "coverage", "entropy", "fit", "component"],
)
def test_axes_are_new_and_say_what_they_show(draw, labels):
    first, second = draw(), draw()
    assert first.figure is not second.figure
    assert (first.get_xlabel(), first.get_ylabel()) == labels
    assert not first.spines["top"].get_visible()


class TestFit:
    def test_band_and_mean_are_drawn_in_order_of_x(self):
        mean, variance, truth = (values.flatten() for values in gaussians(1, 20))
        x = torch.randn(20, dtype=torch.float64)
        order = x.argsort()
        ax = plots.plot_fit(x, mean, variance, truth=truth, data=(x, truth), level=0.8)
        np.testing.assert_allclose(line(ax, "mean"), torch.stack([x, mean], 1)[order])
        np.testing.assert_allclose(line(ax, "truth"), torch.stack([x, truth], 1)[order])
        np.testing.assert_allclose(line(ax, "data"), torch.stack([x, truth], 1))
        expected = stats.norm.interval(0.8, mean[order], variance[order].sqrt())
        np.testing.assert_allclose(band(ax, "80% interval"), expected)
        assert legend(ax) == {"mean", "80% interval", "truth", "data"}
        assert ax.get_xlabel()
        assert ax.get_ylabel()

    def test_parameters_columns_arrays_and_half_precision_are_welcome(self):
        x = np.linspace(0, 1, 5)
        mean = torch.zeros(5, 1, requires_grad=True)
        ax = plots.plot_fit(x, mean, torch.ones(5, dtype=torch.bfloat16))
        np.testing.assert_allclose(line(ax, "mean")[:, 0], x)

    def test_bad_input_is_named(self):
        x = torch.zeros(3)
        with pytest.raises(ValueError, match=r"3 of x, 2 of mean, 3 of variance"):
            plots.plot_fit(x, torch.zeros(2), torch.ones(3))
        with pytest.raises(ValueError, match=r"must not be negative, got -1"):
            plots.plot_fit(x, x, -torch.ones(3))
        with pytest.raises(ValueError, match=r"level must lie strictly between 0 and 1, got 95"):
            plots.plot_fit(x, x, x, level=95.0)
        with pytest.raises(ValueError, match=r"x is empty"):
            plots.plot_fit([], [], [])


class TestReliability:
    def test_bars_are_accuracy_and_gap_of_the_bins(self):
        probs, target = class_rows()
        bins = metrics.reliability_bins(probs, target, num_bins=10)
        filled = bins.rows > 0
        ax = plots.plot_reliability(probs, target, num_bins=10)
        drawn, gap = bars(ax, "accuracy"), bars(ax, "gap to confidence")
        np.testing.assert_allclose(drawn[:, 0], bins.edges[:-1][filled], atol=1e-7)
        np.testing.assert_allclose(drawn[:, 2], bins.accuracy[filled])
        np.testing.assert_allclose(gap[:, 1], bins.accuracy[filled])
        np.testing.assert_allclose(gap[:, 1] + gap[:, 2], bins.mean_confidence[filled])
        assert ax.get_title() == f"ECE {100 * metrics.ece(probs, target, num_bins=10):.1f}%"
        assert (ax.get_xlabel(), ax.get_ylabel()) == ("confidence", "accuracy")

    def test_empty_bins_have_no_bars(self):
        probs, target = np.array([[0.95, 0.05], [0.6, 0.4]]), np.array([0, 1])
        ax = plots.plot_reliability(probs, target, num_bins=10)
        np.testing.assert_allclose(bars(ax, "accuracy")[:, [0, 2]], [[0.5, 0], [0.9, 1]])


class TestCoverage:
    @pytest.mark.parametrize("components", [1, 4])
    def test_curve_is_the_coverage_at_every_level(self, components: int):
        inputs = gaussians(components, 50, 2)
        ax = plots.plot_coverage(metrics.mixture_pit(*inputs), num_levels=9)
        nominal, observed = line(ax, "observed").T
        np.testing.assert_allclose(nominal, np.arange(1, 10) / 10)
        expected = [float(metrics.mixture_coverage(*inputs, level=p)) for p in nominal]
        np.testing.assert_allclose(observed, expected)
        np.testing.assert_allclose(line(ax, "calibrated"), [[0, 0], [1, 1]])

    def test_noise_is_that_of_as_many_coin_tosses(self):
        ax = plots.plot_coverage(torch.rand(400), num_levels=3)
        low, high = band(ax, "sampling noise, 95%")
        expected = 1.96 * stats.binom.std(400, [0.25, 0.5, 0.75]) / 400
        np.testing.assert_allclose((high - low) / 2, expected)

    def test_nothing_is_refused(self):
        with pytest.raises(ValueError, match="pit is empty"):
            plots.plot_coverage(torch.rand(0))


class TestComponents:
    def test_every_feature_has_its_panel_on_one_scale(self):
        mean, variance, _ = gaussians(20, 6)
        grid = torch.linspace(0, 1, 20).unsqueeze(1).expand(20, 6)
        names = [f"feature {d}" for d in range(6)]
        axes = plots.plot_components(grid, mean, variance, names=names)
        assert [ax.get_xlabel() for ax in axes] == names
        assert len({ax.get_ylim() for ax in axes}) == 1
        assert [bool(ax.get_ylabel()) for ax in axes] == [True, False, False] * 2
        for d, ax in enumerate(axes):
            np.testing.assert_allclose(line(ax, "mean")[:, 1], mean[:, d])
            expected = stats.norm.interval(0.95, mean[:, d], variance[:, d].sqrt())
            np.testing.assert_allclose(band(ax, "95% interval"), expected)

    def test_spare_panels_are_removed(self):
        values = torch.ones(4, 5)
        axes = plots.plot_components(torch.rand(4, 5), values, values)
        assert axes[0].figure.axes == axes
        assert [ax.get_xlabel() for ax in axes] == ["x0", "x1", "x2", "x3", "x4"]

    def test_given_axes_get_one_scale_too(self):
        _, (first, second) = pyplot.subplots(2)
        mean = torch.stack([torch.zeros(5), torch.full((5,), 9.0)], 1)
        grid = torch.rand(5, 2)
        drawn = plots.plot_components(grid, mean, torch.ones(5, 2), axes=[first, second])
        assert drawn == [first, second]
        assert first.get_ylim() == second.get_ylim()

    def test_shapes_and_names_must_fit(self):
        values = torch.ones(4, 2)
        with pytest.raises(ValueError, match=r"one shape \(points, features\) .* \(4,\)"):
            plots.plot_components(torch.ones(4), torch.ones(4), torch.ones(4))
        with pytest.raises(ValueError, match=r"each of 2 features, got 1 names and 2 Axes"):
            plots.plot_components(values, values, values, names=["age"])
        with pytest.raises(ValueError, match=r"one shape .* \(4, 0\)"):
            plots.plot_components(values[:, :0], values[:, :0], values[:, :0])


class TestEntropy:
    def test_steps_are_shares_of_rows_in_common_bins(self):
        inside, outside = torch.rand(50), 2 * torch.rand(20)
        ax = plots.plot_entropy(inside, outside, num_bins=8)
        steps = {p.get_label(): p.get_data() for p in ax.patches if not p.get_fill()}
        assert steps.keys() == legend(ax) == {"in distribution", "out of distribution"}
        edges = np.linspace(0, float(outside.max()), 9)
        for label, values in (("in distribution", inside), ("out of distribution", outside)):
            counts, _ = np.histogram(values, edges)
            np.testing.assert_allclose(steps[label].values, counts / len(values))
            np.testing.assert_allclose(steps[label].edges, edges)

    def test_certainty_everywhere_fills_the_first_bin(self):
        ax = plots.plot_entropy(torch.zeros(5), torch.zeros(3), num_bins=4)
        assert all(patch.get_data().values[0] == pytest.approx(1) for patch in ax.patches)

    def test_nothing_is_refused(self):
        with pytest.raises(ValueError, match="outside is empty"):
            plots.plot_entropy(torch.rand(3), torch.rand(0))


def test_all_draw_on_the_axes_they_are_given():
    _, axes = pyplot.subplots(5)
    values, (probs, target) = torch.rand(6), class_rows(6)
    returned = [
        plots.plot_fit(values, values, values, ax=axes[0]),
        plots.plot_reliability(probs, target, ax=axes[1]),
        plots.plot_coverage(values, ax=axes[2]),
        plots.plot_component(values, values, values, ax=axes[3]),
        plots.plot_entropy(values, values, ax=axes[4]),
    ]
    assert returned == list(axes)
    assert len(pyplot.get_fignums()) == 1
