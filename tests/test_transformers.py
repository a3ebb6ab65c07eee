"""Classifiers on encoders of transformers: their loss, predictions, files and frozen parts."""

import pytest
import torch
import torch.nn.functional as F
from transformers import AutoModel

from sikagp.integrations.transformers import SIKAForSequenceClassification, SIKATextConfig
from sikagp.integrations.transformers.modeling import encoder_layers
from sikagp.integrations.transformers.pooling import pool
from sikagp.metrics import mutual_information
from tests.helpers import assert_close
from tests.text_models import CLASSES, ENCODERS, tiny_classifier, tokens


def test_mean_pooling_ignores_padding():
    states, mask = torch.randn(2, 4, 3), torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1]])
    expected = torch.stack([states[0, :2].mean(0), states[1].mean(0)])
    assert_close(pool(states, mask, "mean"), expected)
    assert_close(pool(states, None, "mean"), states.mean(1))
    assert_close(pool(states, mask, "cls"), states[:, 0])
    with pytest.raises(ValueError, match="pooling"):
        pool(states, mask, "max")


@pytest.mark.parametrize("encoder", ENCODERS)
@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_logits_are_logarithms_of_averaged_probabilities(encoder, pooling):
    model = tiny_classifier(encoder, pooling=pooling).eval()
    inputs = tokens(5)
    output = model(**inputs)
    draws = model.draw_probs(**inputs)
    assert draws.shape == (100, 5, CLASSES)
    assert_close(output.logits.exp(), draws.mean(0))
    assert output.loss is None
    assert model(**inputs, return_dict=False)[0].equal(output.logits)


def test_the_training_loss_is_the_negative_elbo():
    model = tiny_classifier(num_data=50, kl_weight=0.7, num_samples=(4000, 10)).train()
    model.encoder.eval()
    inputs, labels = tokens(6), torch.tensor([0, 1, 2, 0, 1, 2])
    model.head.standardise.momentum = 0.0  # repeated passes leave the statistics alone
    with torch.no_grad():
        loss = model(**inputs, labels=labels).loss
        draws = model.latent(**inputs).rsample((4000,))
    cross_entropy = F.cross_entropy(draws.flatten(0, 1), labels.repeat(4000))
    expected = cross_entropy + 0.7 * model.kl_divergence() / 50
    torch.testing.assert_close(loss, expected, rtol=0.01, atol=0.01)
    model.kl_warmup = 0.0
    assert model(**inputs, labels=labels).loss < loss - 0.5 * (expected - cross_entropy)


def test_the_evaluation_loss_is_the_predictive_one():
    model = tiny_classifier().eval()
    inputs, labels = tokens(6), torch.tensor([0, 1, 2, 0, 1, 2])
    output = model(**inputs, labels=labels)
    assert_close(output.loss, F.cross_entropy(output.logits, labels))


def test_training_needs_the_number_of_rows():
    with pytest.raises(ValueError, match="num_data"):
        tiny_classifier().train()(**tokens(2), labels=torch.tensor([0, 1]))


@pytest.mark.parametrize("normalisation", ["batch", "running", "none"])
def test_predictions_do_not_depend_on_the_other_rows(normalisation):
    options = {"level": 3, "normalisation": normalisation}
    model = tiny_classifier(head_options=options, num_data=20, pooling="mean").train()
    inputs = tokens(8)
    model(**inputs, labels=torch.zeros(8, dtype=torch.long))  # moves the statistics
    model.eval()
    whole = model(**inputs).logits
    single = [model(**{name: x[i : i + 1] for name, x in inputs.items()}).logits for i in range(8)]
    assert_close(torch.cat(single), whole)


def test_scores_of_doubt():
    model = tiny_classifier(calibration_temperature=2.0).eval()
    inputs = tokens(5)
    prediction = model.predict(num_draws=40, **inputs)
    draws = model.draw_probs(num_draws=40, **inputs)
    tempered = draws.mean(0).sqrt()
    assert_close(prediction.probs, tempered / tempered.sum(-1, keepdim=True))
    assert_close(prediction.entropy, torch.special.entr(draws.mean(0)).sum(-1))
    assert_close(prediction.mutual_information, mutual_information(draws))
    assert_close(prediction.logit_variance, model.latent(**inputs).variance.sum(-1))
    assert_close(model.predict(**inputs).probs, model(**inputs).logits.exp())


@pytest.mark.parametrize("encoder", ENCODERS)
def test_a_saved_model_predicts_the_same(encoder, tmp_path):
    options = {"level": 2, "kernel": "matern32", "normalisation": "running"}
    model = tiny_classifier(encoder, head_options=options, num_data=9, calibration_temperature=0.7)
    model.train()(**tokens(8), labels=torch.zeros(8, dtype=torch.long))
    model.eval().save_pretrained(tmp_path)
    loaded = SIKAForSequenceClassification.from_pretrained(tmp_path)
    inputs = tokens(5)
    assert not loaded.training
    assert loaded(**inputs).logits.equal(model(**inputs).logits)
    assert loaded.kl_divergence().equal(model.kl_divergence())
    assert loaded.config.head_options == model.config.head_options
    assert (loaded.config.calibration_temperature, loaded.config.num_data) == (0.7, 9)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_an_encoder_keeps_its_weights(encoder, tmp_path):
    weights = AutoModel.from_config(ENCODERS[encoder]).eval()
    weights.save_pretrained(tmp_path)
    model = SIKAForSequenceClassification.from_encoder(str(tmp_path), num_labels=4, projection=8)
    inputs = tokens(3)
    states = model.eval().encoder(**inputs)[0]
    assert_close(states, weights(**inputs)[0])
    assert model.config.encoder_name == str(tmp_path)
    assert model(**inputs).logits.shape == (3, 4)
    assert not any("pooler" in name for name, _ in model.named_parameters())


def test_from_encoder_takes_a_configuration_or_options():
    encoder = AutoModel.from_config(ENCODERS["bert"])
    config = SIKATextConfig(ENCODERS["bert"], num_labels=2, projection=4)
    model = SIKAForSequenceClassification.from_encoder(encoder, config)
    assert model.head.out_features == 2
    with pytest.raises(TypeError, match="both"):
        SIKAForSequenceClassification.from_encoder(encoder, config, num_labels=3)


@pytest.mark.parametrize("encoder", ENCODERS)
def test_frozen_layers_stay_in_evaluation_mode(encoder):
    model = tiny_classifier(encoder).train()
    layers = encoder_layers(model.encoder)
    model.set_trainable_layers(1)
    model.train()
    assert [layer.training for layer in layers] == [False, False, True]
    trained = {name for name, value in model.named_parameters() if value.requires_grad}
    last = {name for name, value in model.named_parameters() if ".layer.2." in name}
    assert trained == last | {name for name in trained if name.startswith("head.")}
    assert model.head.layer.weight_mean.requires_grad
    model.set_trainable_layers(0)
    assert not any(value.requires_grad for value in model.encoder.parameters())
    model.set_trainable_layers(None)
    assert all(value.requires_grad for value in model.parameters())
    assert all(layer.training for layer in layers)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="3 layers, cannot train 4"):
        tiny_classifier().set_trainable_layers(4)
    with pytest.raises(ValueError, match="model_type"):
        SIKAForSequenceClassification(SIKATextConfig())
    with pytest.raises(ValueError, match="pooling"):
        SIKATextConfig(pooling="max")
    with pytest.raises(ValueError, match="temperature"):
        SIKATextConfig(calibration_temperature=0.0)
    with pytest.raises(ValueError, match="found no list"):
        encoder_layers(_Layerless())


class _Layerless(torch.nn.Module):
    config = ENCODERS["bert"]


def test_the_export_is_lazy():
    import sikagp

    assert sikagp.SIKAForSequenceClassification is SIKAForSequenceClassification
