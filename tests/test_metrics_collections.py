"""Collections give for pieces, processes and streams what the functions give for the whole set."""

import pickle

import pytest
import torch
from predictions import class_rows, gaussians, score_rows
from sklearn import metrics as oracle
from torch import Tensor

from sikagp import metrics

COLLECTIONS = {
    "regression": lambda: metrics.regression_metrics(level=0.8),
    "mixture": metrics.mixture_metrics,
    "classification": lambda: metrics.classification_metrics(4, num_bins=10),
    "detection": metrics.detection_metrics,
}


def rows_of(kind: str) -> tuple[Tensor, ...]:
    """Inputs of a collection, rows last among the dimensions that are split."""
    if kind == "regression":
        means, variances, target = gaussians(1, 60)
        return means[0], variances[0], target
    if kind == "mixture":
        return gaussians(5, 60)
    return class_rows(60) if kind == "classification" else score_rows(60)


def pieces(kind: str, inputs: tuple[Tensor, ...], sizes: list[int]) -> list[tuple[Tensor, ...]]:
    dims = [1, 1, 0] if kind == "mixture" else [0] * len(inputs)
    parts = [tensor.split(sizes, dim) for tensor, dim in zip(inputs, dims, strict=True)]
    return list(zip(*parts, strict=True))


def assert_same_results(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=1e-12, atol=1e-12)


class TestCollections:
    def test_results_are_those_of_the_functions(self):
        mean, variance, target = rows_of("regression")
        collection = COLLECTIONS["regression"]()
        collection.update(mean, variance, target)
        expected = {
            "rmse": metrics.rmse(mean, target),
            "nlpd": metrics.nlpd(mean, variance, target),
            "crps": metrics.crps(mean, variance, target),
            "coverage": metrics.coverage(mean, variance, target, level=0.8),
        }
        assert_same_results(collection.compute(), expected)

    def test_results_are_those_of_the_functions_for_mixtures(self):
        means, variances, target = inputs = rows_of("mixture")
        collection = COLLECTIONS["mixture"]()
        collection.update(*inputs)
        mean, variance = metrics.mixture_moments(means, variances)
        expected = {
            "rmse": metrics.rmse(mean, target),
            "nlpd": metrics.mixture_nlpd(*inputs),
            "gaussian_nlpd": metrics.nlpd(mean, variance, target),
            "crps": metrics.mixture_crps(*inputs),
            "coverage": metrics.mixture_coverage(*inputs),
        }
        assert_same_results(collection.compute(), expected)

    def test_results_are_those_of_the_functions_for_classes(self):
        inputs = rows_of("classification")
        collection = COLLECTIONS["classification"]()
        collection.update(*inputs)
        names = ("accuracy", "nll", "brier")
        expected = {name: getattr(metrics, name)(*inputs) for name in names}
        expected["ece"] = metrics.ece(*inputs, num_bins=10)
        assert_same_results(collection.compute(), expected)
        bins = metrics.reliability_bins(*inputs, num_bins=10)
        torch.testing.assert_close(collection["ece"].bins(), bins)

    def test_results_are_those_of_the_functions_for_detection(self):
        inputs = rows_of("detection")
        collection = COLLECTIONS["detection"]()
        collection.update(*inputs)
        names = ("auroc", "auprc", "fpr_at_tpr")
        assert_same_results(
            collection.compute(), {name: getattr(metrics, name)(*inputs) for name in names}
        )

    @pytest.mark.parametrize("kind", COLLECTIONS)
    @pytest.mark.parametrize("sizes", [[30, 30], [1, 50, 9], [60, 0]])
    def test_pieces_give_what_the_whole_set_gives(self, kind: str, sizes: list[int]):
        inputs = rows_of(kind)
        whole, split = COLLECTIONS[kind](), COLLECTIONS[kind]()
        whole.update(*inputs)
        for piece in pieces(kind, inputs, sizes):
            split.update(*piece)
        assert_same_results(split.compute(), whole.compute())

    @pytest.mark.parametrize("kind", COLLECTIONS)
    def test_states_of_two_processes_reduce_to_one(self, kind: str):
        inputs = rows_of(kind)
        whole = COLLECTIONS[kind]()
        whole.update(*inputs)
        expected = whole.compute()
        first, second = pieces(kind, inputs, [25, 35])
        for name in expected:
            here, there = COLLECTIONS[kind]()[name], COLLECTIONS[kind]()[name]
            here.update(*first)
            there.update(*second)
            here.merge_state(there)
            torch.testing.assert_close(here.compute(), expected[name], rtol=1e-12, atol=1e-12)

    @pytest.mark.parametrize("kind", COLLECTIONS)
    def test_reset_forgets_and_pickle_remembers(self, kind: str):
        inputs = rows_of(kind)
        collection = COLLECTIONS[kind]()
        collection.update(*inputs)
        expected = collection.compute()
        assert_same_results(pickle.loads(pickle.dumps(collection)).compute(), expected)
        collection.reset()
        collection.update(*inputs)
        assert_same_results(collection.compute(), expected)

    def test_equal_first_batches_do_not_join_metrics(self):
        """A perfect first batch leaves NLL and Brier score with equal sums."""
        collection = metrics.classification_metrics(4)
        collection.update(torch.eye(4), torch.arange(4))
        collection.update(*(rows := class_rows(20)))
        nll, brier = collection.compute()["nll"], collection.compute()["brier"]
        assert nll.item() == pytest.approx(metrics.nll(*rows).item() * 20 / 24)
        assert brier.item() == pytest.approx(metrics.brier(*rows).item() * 20 / 24)

    def test_a_batch_of_scores_inside_the_unit_interval_is_not_taken_for_probabilities(self):
        score, positive = torch.tensor([0.2, 0.9, 3.0, 2.0]), torch.tensor([0, 1, 1, 0])
        collection = metrics.detection_metrics()
        collection.update(score[:2], positive[:2])
        collection.update(score[2:], positive[2:])
        expected = oracle.roc_auc_score(positive, score)
        assert collection.compute()["auroc"].item() == pytest.approx(expected)

    def test_long_streams_of_single_precision_keep_their_digits(self):
        metric = metrics.regression_metrics()["rmse"]
        ones = torch.ones(10_000)
        for _ in range(2000):
            metric.update(1.1 * ones, ones, ones)
        assert metric.compute().item() == pytest.approx(0.1, rel=1e-6)

    def test_gradients_are_not_kept(self):
        mean = torch.randn(5, requires_grad=True)
        collection = metrics.regression_metrics(prefix="validation/")
        collection.update(mean, torch.ones(5), torch.zeros(5))
        results = collection.compute()
        assert set(results) == {f"validation/{n}" for n in ("rmse", "nlpd", "crps", "coverage")}
        assert not any(value.requires_grad for value in results.values())


@pytest.mark.skipif(torch.backends.mps.is_available(), reason="the accelerator has no float64")
def test_more_rows_are_counted_than_single_precision_can():
    metric = metrics.ExpectedCalibrationError(num_bins=1)
    metric.totals.fill_(2.0**24)
    metric.update(torch.ones(1, 1), torch.tensor([0]))
    assert [float(total) for total in metric.bins()] == [2**24 + 1] * 3
