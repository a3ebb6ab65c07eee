"""Metrics against SciPy, scikit-learn, torch.distributions and numerical integration."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from helpers import assert_close
from predictions import class_rows, gaussians, score_rows
from scipy import integrate, optimize, stats
from sklearn import metrics as oracle
from torch import Tensor
from torch.distributions import Categorical, MixtureSameFamily, Normal
from torchmetrics.functional.classification import multiclass_calibration_error

from sikagp import metrics

LEVELS = (0.05, 0.5, 0.9, 0.99)


def mixture(means: Tensor, variances: Tensor) -> MixtureSameFamily:
    components = Normal(means.movedim(0, -1), variances.movedim(0, -1).sqrt())
    return MixtureSameFamily(Categorical(torch.ones_like(components.loc)), components)


def integrated_crps(cdf, target: float) -> float:
    """The definition: the squared distance between F and the step at y, integrated."""
    below, _ = integrate.quad(lambda t: cdf(t) ** 2, -30, target, limit=200)
    above, _ = integrate.quad(lambda t: (1 - cdf(t)) ** 2, target, 30, limit=200)
    return below + above


class TestRegression:
    def test_rmse_is_that_of_scikit_learn(self):
        mean, _, target = gaussians(1, 50, 3)
        expected = oracle.mean_squared_error(target.flatten(), mean[0].flatten()) ** 0.5
        assert metrics.rmse(mean[0], target).item() == pytest.approx(expected)

    def test_nlpd_is_the_density_of_scipy(self):
        means, variances, target = gaussians(1, 40, 2)
        density = stats.norm.logpdf(target, means[0], variances[0].sqrt())
        value = metrics.nlpd(means[0], variances[0], target).item()
        assert value == pytest.approx(-density.mean())

    def test_mixture_nlpd_is_the_density_of_torch(self):
        means, variances, target = gaussians(5, 40, 2)
        expected = -mixture(means, variances).log_prob(target).mean()
        assert_close(metrics.mixture_nlpd(means, variances, target), expected)

    def test_mixture_nlpd_stays_finite_where_densities_underflow(self):
        means, variances = torch.zeros(2, 1), torch.full((2, 1), 1e-4)
        value = metrics.mixture_nlpd(means, variances, torch.full((1,), 10.0)).item()
        assert value == pytest.approx(-stats.norm.logpdf(10, 0, 1e-2), rel=1e-5)

    def test_moments_of_a_mixture_are_those_of_torch(self):
        means, variances, _ = gaussians(5, 40, 2)
        mean, variance = metrics.mixture_moments(means, variances)
        assert_close(mean, mixture(means, variances).mean)
        assert_close(variance, mixture(means, variances).variance)

    def test_pit_is_the_distribution_function(self):
        means, variances, target = gaussians(5, 40)
        expected = torch.from_numpy(stats.norm.cdf(target, means[0], variances[0].sqrt()))
        assert_close(metrics.pit(means[0], variances[0], target), expected)
        expected = mixture(means, variances).cdf(target)
        assert_close(metrics.mixture_pit(means, variances, target), expected)

    @pytest.mark.parametrize("level", LEVELS)
    def test_coverage_counts_targets_in_the_interval_of_scipy(self, level: float):
        means, variances, target = gaussians(1, 300)
        low, high = stats.norm.interval(level, means[0], variances[0].sqrt())
        expected = ((low <= target.numpy()) & (target.numpy() <= high)).mean()
        value = metrics.coverage(means[0], variances[0], target, level=level).item()
        assert value == pytest.approx(expected)

    @pytest.mark.parametrize("level", LEVELS)
    def test_mixture_coverage_counts_targets_between_quantiles(self, level: float):
        means, variances, target = gaussians(3, 60)

        def quantile(row: int, probability: float) -> float:
            parts = stats.norm(means[:, row].numpy(), variances[:, row].sqrt().numpy())
            return optimize.brentq(lambda t: parts.cdf(t).mean() - probability, -30, 30)

        inside = [
            quantile(row, (1 - level) / 2) <= target[row] <= quantile(row, (1 + level) / 2)
            for row in range(len(target))
        ]
        value = metrics.mixture_coverage(means, variances, target, level=level).item()
        assert value == pytest.approx(np.mean(inside))

    def test_crps_is_the_integral_that_defines_it(self):
        means, variances, target = gaussians(1, 6)
        expected = [
            integrated_crps(stats.norm(m, v**0.5).cdf, y)
            for m, v, y in zip(*map(Tensor.tolist, (means[0], variances[0], target)), strict=True)
        ]
        value = metrics.crps(means[0], variances[0], target).item()
        assert value == pytest.approx(np.mean(expected), rel=1e-6)

    def test_mixture_crps_is_the_integral_that_defines_it(self):
        means, variances, target = gaussians(4, 6)
        expected = []
        for row in range(len(target)):
            parts = stats.norm(means[:, row].numpy(), variances[:, row].sqrt().numpy())
            expected.append(integrated_crps(lambda t, p=parts: p.cdf(t).mean(), float(target[row])))
        value = metrics.mixture_crps(means, variances, target).item()
        assert value == pytest.approx(np.mean(expected), rel=1e-6)

    def test_crps_of_a_sharp_prediction_is_the_absolute_error(self):
        mean, target = torch.randn(20), torch.randn(20)
        value = metrics.crps(mean, torch.full((20,), 1e-12), target)
        assert_close(value, (mean - target).abs().mean())

    @pytest.mark.parametrize("name", ["nlpd", "crps", "coverage"])
    def test_equal_components_are_one_gaussian(self, name: str):
        means, variances, target = gaussians(1, 30, 2)
        whole = getattr(metrics, name)(means[0], variances[0], target)
        copies = means.expand(7, -1, -1), variances.expand(7, -1, -1)
        assert_close(getattr(metrics, f"mixture_{name}")(*copies, target), whole)

    def test_single_precision_and_half_precision_inputs(self):
        inputs = [tensor[0] for tensor in gaussians(1, 30)[:2]]
        target = torch.randn(30, dtype=torch.float64)
        exact = metrics.nlpd(*inputs, target)
        for dtype in (torch.float32, torch.bfloat16):
            value = metrics.nlpd(*(tensor.to(dtype) for tensor in (*inputs, target)))
            assert value.dtype == torch.float32
            assert_close(value, exact, dtype=dtype)

    def test_a_diverged_model_scores_nan(self):
        nan, target = torch.full((3,), torch.nan), torch.zeros(3)
        for score in (metrics.nlpd, metrics.crps, metrics.coverage):
            assert score(nan, nan, target).isnan()


class TestClassification:
    def test_accuracy_and_nll_are_those_of_scikit_learn(self):
        probs, target = class_rows()
        expected = oracle.accuracy_score(target, probs.argmax(-1))
        assert metrics.accuracy(probs, target).item() == pytest.approx(expected)
        expected = oracle.log_loss(target, probs, labels=range(4))
        assert metrics.nll(probs, target).item() == pytest.approx(expected)

    def test_brier_is_that_of_scikit_learn(self):
        probs, target = class_rows()
        expected = oracle.brier_score_loss(target, probs, labels=range(4), scale_by_half=False)
        assert metrics.brier(probs, target).item() == pytest.approx(expected)

    @pytest.mark.parametrize("num_bins", [1, 7, 15, 100])
    def test_ece_is_the_definition(self, num_bins: int):
        probs, target = class_rows()
        confidence, predicted = probs.max(-1)
        expected = 0.0
        for m in range(num_bins):
            chosen = (confidence > m / num_bins) & (confidence <= (m + 1) / num_bins)
            if chosen.any():
                accuracy = (predicted == target)[chosen].double().mean()
                expected += chosen.sum() / 200 * (accuracy - confidence[chosen].mean()).abs()
        assert metrics.ece(probs, target, num_bins=num_bins).item() == pytest.approx(
            float(expected)
        )

    def test_ece_is_that_of_torchmetrics_off_the_edges(self):
        probs, target = class_rows()
        expected = multiclass_calibration_error(probs, target, 4, n_bins=10)
        assert_close(metrics.ece(probs, target, num_bins=10), expected)

    def test_bins_are_closed_above_and_certainty_falls_in_the_last(self):
        probs = torch.tensor([[0.5, 0.5, 0.0], [0.75, 0.25, 0.0], [1.0, 0.0, 0.0], [0.9, 0.1, 0.0]])
        bins = metrics.reliability_bins(probs, torch.tensor([0, 0, 0, 1]), num_bins=4)
        assert bins.rows.tolist() == [0, 1, 1, 2]
        assert bins.correct.tolist() == [0, 1, 1, 1]
        assert_close(bins.confidence.float(), torch.tensor([0, 0.5, 0.75, 1.9]))
        # One bin for 1.0 and 0.9, as defined: a bin of its own for 1.0 would give 0.9 / 4 more.
        assert bins.ece.item() == pytest.approx((0.5 + 0.25 + 0.9) / 4)
        assert bins.accuracy[0].isnan()
        assert bins.mean_confidence[0].isnan()

    def test_certain_and_right_is_perfect(self):
        probs, target = torch.eye(3), torch.arange(3)
        assert metrics.accuracy(probs, target) == 1
        assert metrics.nll(probs, target) == 0
        assert metrics.brier(probs, target) == 0
        assert metrics.ece(probs, target) == 0

    def test_certain_and_wrong_is_as_bad_as_it_gets_but_finite(self):
        probs, target = torch.eye(3), torch.tensor([1, 2, 0])
        assert metrics.accuracy(probs, target) == 0
        assert metrics.nll(probs, target).item() == pytest.approx(87.34, abs=0.01)
        assert metrics.brier(probs, target) == 2
        assert metrics.ece(probs, target) == 1

    def test_one_class_leaves_nothing_to_get_wrong(self):
        probs, target = torch.ones(5, 1), torch.zeros(5, dtype=torch.long)
        assert metrics.accuracy(probs, target) == 1
        assert metrics.nll(probs, target) == 0
        assert metrics.ece(probs, target) == 0
        assert metrics.predictive_entropy(probs).eq(0).all()

    @pytest.mark.parametrize("name", ["accuracy", "nll", "brier", "ece"])
    def test_rows_may_be_arranged_in_any_shape(self, name: str):
        probs, label = class_rows(24, 3)
        score = getattr(metrics, name)
        assert_close(score(probs.view(3, 4, 2, 3), label.view(3, 4, 2)), score(probs, label))

    @pytest.mark.parametrize("name", ["accuracy", "nll", "brier"])
    def test_scores_of_parts_average_to_that_of_all(self, name: str):
        probs, label = class_rows(30, 4)
        score = getattr(metrics, name)
        parts = [score(p, y) * len(y) for p, y in zip(probs.split(7), label.split(7), strict=True)]
        assert_close(torch.stack(parts).sum() / 30, score(probs, label))

    def test_permuting_classes_changes_no_score(self):
        probs, label = class_rows(50, 4)
        order = torch.tensor([2, 0, 3, 1])
        inverse = order.argsort()
        for name in ("accuracy", "nll", "brier", "ece"):
            score = getattr(metrics, name)
            assert_close(score(probs[:, order], inverse[label]), score(probs, label))

    def test_entropy_is_that_of_scipy(self):
        probs, _ = class_rows()
        probs[0] = torch.tensor([1.0, 0.0, 0.0, 0.0])
        expected = torch.from_numpy(stats.entropy(probs.numpy(), axis=-1))
        assert_close(metrics.predictive_entropy(probs), expected)

    def test_mutual_information_is_that_of_the_joint_table(self):
        """Draw and class as two random variables: their joint probabilities are p / S."""
        probs = torch.randn(6, 10, 4, dtype=torch.float64).softmax(-1)
        expected = [
            sum(stats.entropy(joint.sum(axis)) for axis in (0, 1)) - stats.entropy(joint.ravel())
            for joint in (probs / 6).transpose(0, 1).numpy()
        ]
        assert_close(metrics.mutual_information(probs), torch.tensor(expected).double())

    def test_draws_that_agree_carry_no_information(self):
        probs, _ = class_rows()
        same = probs.float().expand(20, -1, -1)
        information = metrics.mutual_information(same)
        assert information.ge(0).all()
        assert information.max() < 1e-6

    def test_draws_that_contradict_each_other_carry_all(self):
        information = metrics.mutual_information(torch.eye(4).unsqueeze(1))
        assert information.item() == pytest.approx(np.log(4))


class TestDetection:
    def test_areas_are_those_of_scikit_learn_with_ties(self):
        score, positive = score_rows()
        expected = oracle.roc_auc_score(positive, score)
        assert metrics.auroc(score, positive).item() == pytest.approx(expected, rel=1e-6)
        expected = oracle.average_precision_score(positive, score)
        assert metrics.auprc(score, positive).item() == pytest.approx(expected, rel=1e-6)

    @pytest.mark.parametrize("tpr", [0.5, 0.8, 0.95])
    def test_false_positives_are_those_of_the_highest_threshold(self, tpr: float):
        score, positive = score_rows()
        reaching = [t for t in score if (score[positive] >= t).double().mean() >= tpr]
        expected = (score[~positive] >= max(reaching)).double().mean().item()
        value = metrics.fpr_at_tpr(score, positive, tpr=tpr).item()
        assert value == pytest.approx(expected, rel=1e-6)

    def test_a_rate_that_is_met_exactly_is_met(self):
        """19 of 20 positive rows lie above all negative ones, and that is 95%."""
        score = torch.cat([torch.arange(20.0) + 10, torch.arange(10.0)])
        score[0] = -1
        positive = torch.arange(30) < 20
        assert metrics.fpr_at_tpr(score, positive) == 0
        assert metrics.fpr_at_tpr(score, positive, tpr=0.951) == 1

    def test_turning_scores_and_marks_around_is_the_same_question(self):
        score, positive = score_rows()
        assert_close(metrics.auroc(-score, ~positive), metrics.auroc(score, positive))
        assert_close(metrics.auroc(-score, positive), 1 - metrics.auroc(score, positive))

    def test_higher_rates_cost_more_false_positives(self):
        score, positive = score_rows()
        rates = [metrics.fpr_at_tpr(score, positive, tpr=tpr) for tpr in (0.5, 0.8, 0.95, 0.99)]
        assert rates == sorted(rates)
        assert rates[0] < rates[-1]

    def test_only_the_order_of_scores_matters(self):
        score, positive = score_rows()
        for score_of in (metrics.auroc, metrics.auprc, metrics.fpr_at_tpr):
            assert score_of(score, positive) == score_of(score.sign() * score**2 + 1e4, positive)

    def test_large_scores_are_told_apart(self):
        score = torch.tensor([100.0, 200.0, 300.0, 400.0])
        assert metrics.auroc(score, torch.tensor([0, 0, 1, 1])) == 1
        assert metrics.auroc(-score, torch.tensor([0, 0, 1, 1])) == 0

    def test_a_constant_score_tells_nothing(self):
        positive = torch.arange(10) < 3
        assert metrics.auroc(torch.ones(10), positive) == 0.5
        assert metrics.auprc(torch.ones(10), positive).item() == pytest.approx(0.3)
        assert metrics.fpr_at_tpr(torch.ones(10), positive) == 1

    @pytest.mark.parametrize("mark", [0, 1])
    def test_one_class_leaves_all_undefined(self, mark: int):
        score, positive = torch.rand(5), torch.full((5,), mark)
        for score_of in (metrics.auroc, metrics.auprc, metrics.fpr_at_tpr):
            assert score_of(score, positive).isnan()


def test_functions_need_torch_alone():
    """Neither torchmetrics nor matplotlib is imported before it is used."""
    script = """
import sys, torch
from sikagp import metrics, plots
metrics.crps(torch.zeros(2), torch.ones(2), torch.zeros(2))
metrics.ece(torch.eye(2), torch.arange(2))
assert not {"torchmetrics", "matplotlib"} & set(sys.modules)
metrics.regression_metrics()
assert "torchmetrics" in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)
