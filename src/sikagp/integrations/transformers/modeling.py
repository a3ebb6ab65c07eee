"""Sequence classification with a SIKA head on any encoder of transformers.

    features = pool(encoder(tokens)),      f ~ SIKA(standardise(W features + b)),
    p(class) = E_q(f) softmax(f)

In training ``loss`` is the negative ELBO per row, the expected cross-entropy over draws of f plus
``beta KL / N``; in evaluation it is the negative log predictive probability. ``logits`` are
logarithms of averaged probabilities: their softmax is the prediction itself.
"""

import inspect
from typing import Any, NamedTuple

import torch
from gpytorch import settings
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

from sikagp._typing import Float, Int
from sikagp.calibration import temper
from sikagp.integrations.transformers.configuration import SIKATextConfig
from sikagp.integrations.transformers.pooling import pool
from sikagp.likelihoods import build_likelihood
from sikagp.metrics import mutual_information, predictive_entropy
from sikagp.models import DeepKernel
from sikagp.objectives import VariationalELBO
from sikagp.predictions import class_probabilities
from sikagp.variational import GaussianMarginals


class TextPrediction(NamedTuple):
    """What a text classifier says about each row; higher scores mean more doubt.

    Attributes:
        probs: class probabilities, shape (batch, classes).
        entropy: total uncertainty in nats, shape (batch,); that of the averaged draws before the
            temperature, which finds foreign texts better.
        mutual_information: what the draws of the logits disagree about, in nats, shape (batch,).
        logit_variance: predictive variance summed over the logits, shape (batch,).
    """

    probs: Tensor
    entropy: Tensor
    mutual_information: Tensor
    logit_variance: Tensor


class SIKAForSequenceClassification(PreTrainedModel):
    """An encoder, pooling, a projection and a SIKA layer with one output per class.

    The modules are ``encoder`` and ``head``; the head is a :class:`~sikagp.DeepKernel` on pooled
    features and holds everything that is not the encoder's. No prediction depends on the other
    rows of its batch. Build it from a configuration, from an encoder's weights with
    :meth:`from_encoder`, or from a saved folder with ``from_pretrained``.
    """

    config_class = SIKATextConfig
    base_model_prefix = "encoder"
    supports_gradient_checkpointing = True
    # The loss is an average per row, so the Trainer has to average it over accumulated steps.
    accepts_loss_kwargs = False
    _supports_sdpa = True
    _supports_flash_attn = True

    def __init__(self, config: SIKATextConfig) -> None:
        super().__init__(config)
        encoder = AutoModel.from_config(config.encoder_config())
        self.encoder = _without_pooler(encoder)
        # Loading builds models without storage; the layer checks its numbers and needs some.
        with torch.device("cpu"):
            self.head = DeepKernel(
                nn.Identity(),
                encoder.config.hidden_size,
                len(config.id2label or ()),
                embedding=config.projection,
                **config.head_options,
            )
        self.kl_warmup = 1.0
        self._trainable_layers: int | None = None
        self.post_init()

    @classmethod
    def from_encoder(
        cls, encoder: str | PreTrainedModel, config: SIKATextConfig | None = None, **options: Any
    ) -> "SIKAForSequenceClassification":
        """Put a fresh head on an encoder with weights: a model, a folder, or a name in the hub.

        Options are those of :class:`SIKATextConfig`, unless a configuration is given.
        """
        name = encoder if isinstance(encoder, str) else encoder.config.name_or_path
        loaded = AutoModel.from_pretrained(encoder) if isinstance(encoder, str) else encoder
        if config is None:
            config = SIKATextConfig(loaded.config, encoder_name=name or None, **options)
        elif options:
            raise TypeError(f"pass a configuration or options, got both: {', '.join(options)}")
        model = cls(config)
        model.encoder.load_state_dict(_without_pooler(loaded).state_dict())
        return model

    def forward(
        self,
        input_ids: Int[Tensor, "batch tokens"] | None = None,
        attention_mask: Int[Tensor, "batch tokens"] | None = None,
        token_type_ids: Int[Tensor, "batch tokens"] | None = None,
        position_ids: Int[Tensor, "batch tokens"] | None = None,
        inputs_embeds: Float[Tensor, "batch tokens features"] | None = None,
        labels: Int[Tensor, " batch"] | None = None,
        return_dict: bool | None = None,
        **options: Any,
    ) -> SequenceClassifierOutput | tuple[Tensor, ...]:
        """Loss (with labels) and logarithms of class probabilities, shape (batch, classes)."""
        inputs = {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            **options,
        }
        states = self._encode(**inputs)
        marginals = self.head(pool(states[0], attention_mask, self.config.pooling))
        logits = self._log_probs(self._probabilities(marginals))
        output = SequenceClassifierOutput(
            loss=None if labels is None else self._loss(marginals, logits, labels),  # type: ignore[arg-type]
            logits=logits,  # type: ignore[arg-type]
            hidden_states=states.hidden_states,
            attentions=states.attentions,
        )
        return output if return_dict in (None, True) else output.to_tuple()

    def latent(
        self, attention_mask: Int[Tensor, "batch tokens"] | None = None, **inputs: Any
    ) -> GaussianMarginals:
        """Marginals of the logits f, shape (batch, classes)."""
        states = self._encode(attention_mask=attention_mask, **inputs)
        return self.head(pool(states[0], attention_mask, self.config.pooling))

    def draw_probs(
        self, num_draws: int | None = None, **inputs: Any
    ) -> Float[Tensor, "draws batch classes"]:
        """Class probabilities of each draw of f; the draws are the same for all rows."""
        return self._probabilities(self.latent(**inputs), num_draws)

    @torch.no_grad()
    def predict(self, num_draws: int | None = None, **inputs: Any) -> TextPrediction:
        """Probabilities and scores of doubt; draws are as given or as configured."""
        return self._summarise(self.latent(**inputs), num_draws)

    @torch.no_grad()
    def predict_features(self, features: Float[Tensor, "batch features"]) -> TextPrediction:
        """The same from pooled features of the encoder, which may have been kept."""
        return self._summarise(self.head(features))

    def _summarise(
        self, marginals: GaussianMarginals, num_draws: int | None = None
    ) -> TextPrediction:
        draws = self._probabilities(marginals, num_draws)
        probs = self._log_probs(draws).exp()
        return TextPrediction(
            probs,
            predictive_entropy(draws.mean(0)),
            mutual_information(draws),
            marginals.variance.sum(-1),
        )

    def kl_divergence(self) -> Float[Tensor, ""]:
        """KL(q || prior) of the head."""
        return self.head.kl_divergence()

    def set_trainable_layers(self, number: int | None) -> None:
        """Train the last ``number`` layers of the encoder, or all of it (None); the head always.

        Frozen parts stay in evaluation mode.
        """
        self._trainable_layers = number
        chosen = self._chosen_layers()
        self.encoder.requires_grad_(number is None)
        for layer in chosen:
            layer.requires_grad_(True)
        self.train(self.training)

    def _chosen_layers(self) -> list[nn.Module]:
        layers, number = encoder_layers(self.encoder), self._trainable_layers or 0
        if not 0 <= number <= len(layers):
            raise ValueError(f"the encoder has {len(layers)} layers, cannot train {number}")
        return layers[len(layers) - number :]

    def train(self, mode: bool = True) -> "SIKAForSequenceClassification":
        """Switch between training and evaluation mode, where frozen parts always are."""
        super().train(mode)
        if mode and self._trainable_layers is not None:
            self.encoder.eval()
            for layer in self._chosen_layers():
                layer.train()
        return self

    def _init_weights(self, module: nn.Module) -> None:
        """Encoder and head have their initial weights when they are built."""

    def _encode(self, **inputs: Any) -> Any:
        return self.encoder(**{name: value for name, value in inputs.items() if value is not None})

    def _loss(
        self,
        marginals: GaussianMarginals,
        logits: Float[Tensor, "batch classes"],
        labels: Int[Tensor, " batch"],
    ) -> Float[Tensor, ""]:
        if not self.training:
            return nn.functional.nll_loss(logits, labels)
        if self.config.num_data is None:
            raise ValueError(
                "the loss needs the number of training rows: set config.num_data, or train with "
                "the KLWarmup callback, which does"
            )
        likelihood = build_likelihood("softmax", self.head.out_features)
        beta = self.config.kl_weight * self.kl_warmup
        elbo = VariationalELBO(likelihood, self.head, self.config.num_data, beta)
        with settings.num_likelihood_samples(self.config.num_samples[0]):
            return -elbo(marginals, labels)

    def _probabilities(
        self, marginals: GaussianMarginals, num_draws: int | None = None
    ) -> Float[Tensor, "draws batch classes"]:
        if num_draws is None:
            num_draws = self.config.num_samples[0 if self.training else 1]
        likelihood = build_likelihood("softmax", self.head.out_features)
        return class_probabilities(likelihood, marginals, num_draws)

    def _log_probs(
        self, draws: Float[Tensor, "draws batch classes"]
    ) -> Float[Tensor, "batch classes"]:
        return temper(draws.mean(0), self.config.calibration_temperature)


def encoder_layers(encoder: nn.Module) -> list[nn.Module]:
    """Transformer layers of an encoder, from the first to the last."""
    depth = encoder.config.num_hidden_layers  # type: ignore[union-attr]
    for module in encoder.modules():
        if isinstance(module, nn.ModuleList) and len(module) == depth:
            return list(module)
    raise ValueError(f"found no list of {depth} layers in a {type(encoder).__name__}")


def _without_pooler(encoder: PreTrainedModel) -> PreTrainedModel:
    """Drop the pooler of encoders that can do without: its weights would never be trained."""
    if "add_pooling_layer" in inspect.signature(type(encoder).__init__).parameters:
        encoder.pooler = None  # type: ignore[assignment]
    return encoder
