"""What a text classifier with a SIKA head is made of, as a configuration of transformers."""

from collections.abc import Mapping
from typing import Any

from transformers import AutoConfig, PretrainedConfig

from sikagp.integrations.transformers.pooling import POOLINGS
from sikagp.validation import check_choice, check_count

# The paper's head; a lengthscale counts in standard deviations of a projected feature.
HEAD_OPTIONS: dict[str, Any] = {
    "normalisation": "batch",
    "level": 7,
    "kernel": "laplace",
    "lengthscale": 1.0,
    "residual": "full",
    "reach": 3.0,
}


class SIKATextConfig(PretrainedConfig):
    """Encoder, pooling, projection, SIKA head, and how its loss is weighed.

    Args:
        encoder: configuration of the encoder, or that as a mapping with its ``model_type``.
        encoder_name: folder or name in the hub that the encoder's weights came from, if any.
        pooling: how the states of the tokens become one feature vector: ``"cls"`` or ``"mean"``.
        projection: number of base GP channels that a linear layer maps the features to.
        head_options: options of the head's :class:`~sikagp.DeepKernel` and its layer that differ
            from :data:`HEAD_OPTIONS`.
        num_samples: draws of the logits per row in training and in evaluation.
        num_data: number of training rows N in ``beta KL / N``; :class:`KLWarmup` sets it.
        kl_weight: beta after the warm-up.
        calibration_temperature: divides the logits of a prediction; fitted on held-out rows.
        doubt_threshold: largest entropy, in nats, at which a prediction counts as an answer.
        options: those of every configuration, such as ``num_labels`` or ``id2label``.
    """

    model_type = "sika_text"

    def __init__(
        self,
        encoder: PretrainedConfig | Mapping[str, Any] | None = None,
        *,
        encoder_name: str | None = None,
        pooling: str = "cls",
        projection: int = 256,
        head_options: Mapping[str, Any] | None = None,
        num_samples: tuple[int, int] | list[int] = (20, 100),
        num_data: int | None = None,
        kl_weight: float = 1.0,
        calibration_temperature: float = 1.0,
        doubt_threshold: float | None = None,
        **options: Any,
    ) -> None:
        # transformers builds a configuration without arguments to see its defaults.
        if isinstance(encoder, PretrainedConfig):
            encoder = encoder.to_dict()
        self.encoder = dict(encoder or {})
        self.encoder_name = encoder_name
        self.pooling = check_choice("pooling", pooling, POOLINGS)
        self.projection = check_count("projection", projection)
        self.head_options = HEAD_OPTIONS | dict(head_options or {})
        self.num_samples = [check_count("num_samples", number) for number in num_samples]
        self.num_data = num_data if num_data is None else check_count("num_data", num_data)
        if kl_weight < 0 or not calibration_temperature > 0:
            raise ValueError(
                "kl_weight must not be negative and calibration_temperature positive, "
                f"got {kl_weight} and {calibration_temperature}"
            )
        self.kl_weight, self.calibration_temperature = kl_weight, calibration_temperature
        self.doubt_threshold = doubt_threshold
        super().__init__(**options)

    def encoder_config(self) -> PretrainedConfig:
        """Configuration of the encoder as its own class."""
        if "model_type" not in self.encoder:
            raise ValueError(
                "expected an encoder's configuration with its model_type, got "
                f"{sorted(self.encoder) or 'nothing'}"
            )
        return AutoConfig.for_model(**self.encoder)
