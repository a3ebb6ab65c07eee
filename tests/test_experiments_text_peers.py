"""Peers for texts and fine-tuning against scikit-learn, dense algebra and schedules by hand."""

import pytest
import torch
from sklearn.covariance import shrunk_covariance
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import average_precision_score, roc_auc_score
from torch import nn
from torch.testing import assert_close

from sikagp.experiments.methods import FitReport, Problem
from sikagp.experiments.tasks import text as task
from sikagp.experiments.text import finetuning
from sikagp.experiments.text.features import fingerprint
from sikagp.experiments.text.finetuning import FineTuning, encode_below, finetuned_features
from sikagp.experiments.text.mahalanobis import Mahalanobis
from sikagp.experiments.text.random_features import SNGP, RandomFeatureGP
from sikagp.experiments.text.scores import detection_scores, doubts, in_scope_scores
from sikagp.integrations.transformers.encoders import tiny_encoder
from sikagp.integrations.transformers.features import encode, tokenize
from tests.text_rows import labelled_texts


def clusters(rows: int = 90, classes: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    labels = torch.arange(classes).repeat(rows // classes)
    spread = torch.randn(5, 5) / 2
    return 2 * torch.eye(classes, 5)[labels] + torch.randn(rows, 5) @ spread, labels


def mahalanobis(classes: int = 3, **options) -> Mahalanobis:
    return Mahalanobis(Problem(5, classes, "classification", options, {}))


@pytest.mark.parametrize("options", [{}, {"shrinkage": 0.5}])
def test_mahalanobis_is_the_linear_discriminant_of_scikit_learn(options):
    x, y = clusters()
    method = mahalanobis(**options)
    report = method.fit((x, y), None, seed=0)
    shrinkage = options.get("shrinkage", 0.05)
    plain = LinearDiscriminantAnalysis(solver="lsqr", shrinkage=shrinkage).fit(x, y)
    new = torch.randn(20, 5)
    expected = torch.from_numpy(plain.predict_proba(new.numpy()))
    assert_close(method.predict(new)[0].double(), expected.double(), rtol=1e-3, atol=1e-4)
    assert (report.epochs, report.history) == (0, [])


def test_doubt_is_the_squared_distance_to_the_nearest_class():
    x, y = clusters()
    method = mahalanobis(shrinkage=0.2)
    method.fit((x, y), None, seed=0)
    means = torch.stack([x[y == label].mean(0) for label in range(3)])
    within = (x - means[y]).double()
    inverse = torch.from_numpy(shrunk_covariance(within.T @ within / len(x), 0.2)).inverse()
    new = torch.randn(7, 5)
    difference = (new[:, None] - means).double()
    distances = torch.einsum("rci,ij,rcj->rc", difference, inverse, difference)
    assert_close(method.distances(new).double(), distances, rtol=1e-3, atol=1e-3)
    assert_close(method.doubt(new).double(), distances.amin(-1), rtol=1e-3, atol=1e-3)


def test_a_class_without_rows_lies_at_the_origin():
    x, y = clusters()
    method = mahalanobis(classes=4)
    method.fit((x, y), None, seed=0)
    assert_close(method.means[3], torch.zeros(5))
    assert method.predict(x).shape == (1, 90, 4)


@torch.no_grad()
def test_sngp_is_conditioned_on_its_training_rows():
    options = {"embedding": 4, "num_features": 32, "ridge": 2.0, "test_samples": 3}
    training = {"epochs": 2, "batch_size": 30, "learning_rate": 0.01}
    method = SNGP(Problem(5, 3, "classification", options, training))
    x, y = clusters()
    with torch.enable_grad():
        method.fit((x, y), None, seed=0)
    model = method.model.eval()
    assert nn.utils.parametrize.is_parametrized(model.embedding)
    assert torch.linalg.matrix_norm(model.embedding.weight, 2) < 1.1
    phi = model.layer.features(model.features(x)).double()
    expected = (2.0 * torch.eye(32) + phi.mT @ phi).inverse()
    assert_close(model.layer.covariance.double(), expected, rtol=1e-3, atol=1e-5)
    assert method.predict(x).shape == (3, 90, 3)


def test_every_class_has_the_same_variance_and_its_own_mean():
    head = RandomFeatureGP(2, 3, num_features=16).eval()
    head.weight.data.normal_()
    x = torch.randn(6, 2)
    found = head(x)
    assert_close(found.mean, head.features(x) @ head.weight)
    assert_close(found.variance, found.variance[:, :1].expand(-1, 3))


def test_doubts_by_their_definitions():
    draws = (2 * torch.randn(6, 50, 4)).softmax(-1).double()
    found = doubts(draws)
    mean = draws.mean(0)
    entropy = -(mean * mean.log()).sum(-1)
    within = -(draws * draws.log()).sum(-1).mean(0)
    assert_close(found["entropy"], entropy)
    assert_close(found["mutual_information"], entropy - within)
    assert_close(found["max_probability"], -mean.amax(-1))
    power = mean ** (1 / 2.5)
    power = power / power.sum(-1, keepdim=True)
    warm = doubts(draws, 2.5)
    assert_close(warm["entropy"], -(power * power.log()).sum(-1))
    assert_close(warm["logit_variance"], found["logit_variance"])


def test_detection_takes_what_is_outside_as_positive():
    inside, outside = {"doubt": torch.randn(80)}, {"doubt": torch.randn(50) + 0.5}
    found = detection_scores(inside, outside)
    marks, both = [0] * 80 + [1] * 50, torch.cat([inside["doubt"], outside["doubt"]])
    assert found["auroc_doubt"] == pytest.approx(roc_auc_score(marks, both), abs=1e-5)
    assert found["auprc_doubt"] == pytest.approx(average_precision_score(marks, both), abs=5e-3)


def test_the_temperature_is_that_of_held_out_rows():
    logits = torch.randn(3000, 4)
    labels = torch.distributions.Categorical(logits=logits).sample()
    sure = (2 * logits).softmax(-1).unsqueeze(0)
    found = in_scope_scores(sure[:, :1000], labels[:1000], sure[:, 1000:], labels[1000:])
    assert found["temperature"] == pytest.approx(2, rel=0.1)
    assert found["ece_tempered"] < found["ece"]
    expected = torch.nn.functional.nll_loss(sure[0, :1000].log(), labels[:1000])
    assert found["nll"] == pytest.approx(expected.item(), rel=1e-5)


class Known:
    """A method whose logits are its features; it has learned already."""

    def fit(self, train, validation, *, seed, folder=None, progress=False) -> FitReport:
        return FitReport(0.0, 0)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(-1).unsqueeze(0)


def test_scores_of_both_splits_and_their_names():
    def rows(scale):
        labels = torch.arange(60) % 3
        return scale * torch.eye(3)[labels] + torch.randn(60, 3), labels

    parts = {"train": rows(3), "validation": rows(3), "test": rows(2)}
    parts |= {f"outside_{name}": rows(0) for name in ("validation", "test")}
    features, labels = ({name: part[i] for name, part in parts.items()} for i in range(2))
    found = task.evaluate(Known(), features, labels)
    for part, prefix in (("validation", "validation_"), ("test", "")):
        draws = features[part].softmax(-1).unsqueeze(0)
        right = (draws[0].argmax(-1) == labels[part]).float().mean()
        assert found[f"{prefix}accuracy"] == pytest.approx(right.item())
        outside = doubts(features[f"outside_{part}"].softmax(-1).unsqueeze(0))
        expected = detection_scores(doubts(draws), outside)
        assert found[f"{prefix}auroc_entropy"] == expected["auroc_entropy"]
    assert found["temperature"] == found["validation_temperature"]
    warm = [
        doubts(features[name].softmax(-1).unsqueeze(0), found["temperature"])
        for name in ("test", "outside_test")
    ]
    assert found["auroc_entropy_tempered"] == detection_scores(*warm)["auroc_entropy"]
    assert not any("distance" in name or "train" in name for name in found)


def test_rates_rise_and_then_fall_to_zero():
    factors = [finetuning._rate_factor(step, 20, 0.2) for step in range(20)]
    assert factors[:4] == pytest.approx([1 / 5, 2 / 5, 3 / 5, 4 / 5])
    assert factors[4:] == pytest.approx([(20 - step) / 16 for step in range(4, 20)])
    assert finetuning._rate_factor(0, 10, 0.0) == 1


@pytest.fixture
def encoded():
    rows = labelled_texts(6)
    encoder = tiny_encoder(rows.texts, width=16)
    return encoder.model, tokenize(encoder.tokenizer, rows.texts, 48), rows.labels


@pytest.mark.parametrize("options", [{"epochs": 0}, {"epochs": 2, "encoder_rate": 0.0}])
def test_layers_that_are_not_trained_give_the_features_they_gave(encoded, tmp_path, options):
    model, tokens, labels = encoded
    tuning = FineTuning(layers=1, frozen_epochs=1, batch_size=4, **options)
    found = finetuned_features(
        model, {"train": tokens}, labels, tuning, pooling="mean", folder=tmp_path, seed=0
    )
    # States below the layers are kept in half precision.
    assert_close(found["train"], encode(model, tokens, "mean"), rtol=1e-2, atol=1e-2)


def test_states_are_those_of_the_layer_below(encoded, tmp_path):
    model, tokens, _ = encoded
    states = encode_below(model, tokens, 2, "mean", tmp_path).states
    with torch.no_grad():
        output = model(input_ids=torch.tensor([tokens[2]]), output_hidden_states=True)
    assert states[2].dtype == torch.float16
    assert_close(states[2], output.hidden_states[-3][0].half())


def test_the_name_of_a_folder_is_no_part_of_an_encoder(encoded):
    model, _, _ = encoded
    before = fingerprint(model)
    model.config._name_or_path = "elsewhere"
    assert fingerprint(model) == before
    model.config.hidden_act = "relu"
    assert fingerprint(model) != before


def test_other_texts_are_refused_by_name():
    with pytest.raises(ValueError, match="name must be one of 'clinc150', got 'banking77'"):
        task.TextOptions(name="banking77")
