"""What the metrics refuse, and how they say it."""

import pytest
import torch

from sikagp import metrics


@pytest.mark.usefixtures("as_users_run")
class TestBadInput:
    def test_a_column_of_targets_is_not_broadcast(self):
        with pytest.raises(ValueError, match=r"same shape .* mean \(5, 1\), target \(5,\)"):
            metrics.rmse(torch.zeros(5, 1), torch.zeros(5))

    def test_components_must_come_first(self):
        with pytest.raises(ValueError, match=r"target of shape \(5,\), got \(5, 3\)"):
            metrics.mixture_crps(torch.zeros(5, 3), torch.ones(5, 3), torch.zeros(5))

    @pytest.mark.parametrize("variance", [0.0, -2.0])
    def test_variances_must_be_positive(self, variance: float):
        with pytest.raises(ValueError, match=f"positive, got {variance:g}"):
            metrics.nlpd(torch.zeros(1), torch.tensor([variance]), torch.zeros(1))

    def test_integers_and_lists_are_no_real_targets(self):
        with pytest.raises(TypeError, match=r"target must hold floating-point .* torch.int64"):
            metrics.rmse(torch.zeros(2), torch.tensor([1, 2]))
        with pytest.raises(TypeError, match=r"mean must be a torch.Tensor, got list"):
            metrics.rmse([0.0], torch.zeros(1))

    @pytest.mark.parametrize("level", [0.0, 1.0, 95.0])
    def test_levels_lie_between_zero_and_one(self, level: float):
        with pytest.raises(ValueError, match="level must lie strictly between"):
            metrics.coverage(torch.zeros(1), torch.ones(1), torch.zeros(1), level=level)
        with pytest.raises(ValueError, match="level must lie strictly between"):
            metrics.regression_metrics(level=level)
        with pytest.raises(ValueError, match="level must lie strictly between"):
            metrics.mixture_metrics(level=level)
        with pytest.raises(ValueError, match="tpr must lie strictly between"):
            metrics.detection_metrics(tpr=level)
        with pytest.raises(ValueError, match="tpr must lie strictly between"):
            metrics.fpr_at_tpr(torch.rand(2), torch.tensor([0, 1]), tpr=level)

    def test_logits_are_recognised(self):
        with pytest.raises(ValueError, match=r"sum to 1 .* logits.softmax"):
            metrics.nll(torch.tensor([[2.0, -1.0]]), torch.tensor([0]))

    def test_labels_must_be_integers_in_range_one_per_row(self):
        probs = torch.full((3, 2), 0.5)
        with pytest.raises(ValueError, match=r"labels must lie in 0..1 for 2 classes, got 2"):
            metrics.accuracy(probs, torch.tensor([0, 1, 2]))
        with pytest.raises(TypeError, match=r"integer class labels, got torch.float32"):
            metrics.brier(probs, torch.zeros(3))
        with pytest.raises(ValueError, match=r"one label per row, shape \(3,\), got \(3, 1\)"):
            metrics.ece(probs, torch.zeros(3, 1, dtype=torch.long))

    def test_probabilities_have_classes_and_draws(self):
        with pytest.raises(ValueError, match=r"\(\*batch, classes\), got \(\)"):
            metrics.predictive_entropy(torch.tensor(1.0))
        with pytest.raises(ValueError, match=r"at least one draw, got \(2,\)"):
            metrics.mutual_information(torch.tensor([0.5, 0.5]))

    def test_bins_and_classes_are_counted(self):
        with pytest.raises(ValueError, match="num_bins must be at least 1"):
            metrics.ece(torch.ones(1, 1), torch.tensor([0]), num_bins=0)
        with pytest.raises(ValueError, match=r"expected 3 classes, got probs of \(1, 2\)"):
            metrics.classification_metrics(3).update(torch.full((1, 2), 0.5), torch.tensor([0]))

    def test_marks_are_zero_or_one_for_each_score(self):
        with pytest.raises(ValueError, match="boolean or hold integers 0 and 1"):
            metrics.auroc(torch.rand(2), torch.tensor([0, 2]))
        for score in (metrics.auroc, metrics.auprc, metrics.fpr_at_tpr):
            with pytest.raises(ValueError, match=r"score \(2,\), positive \(3,\)"):
                score(torch.rand(2), torch.tensor([0, 1, 1]))
        with pytest.raises(ValueError, match=r"score \(2,\), positive \(3,\)"):
            metrics.detection_metrics().update(torch.rand(2), torch.tensor([0, 1, 1]))

    def test_unknown_names_are_attribute_errors(self):
        with pytest.raises(AttributeError, match="no attribute 'accuracies'"):
            _ = metrics.accuracies
