"""Saving fitted estimators: JSON and safetensors in one folder, no pickle."""

import json
import os
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sikagp.estimators.components import AdditiveEstimator
from sikagp.estimators.preparation import Standardiser
from sikagp.models.predictor import Predictor

Estimator = TypeVar("Estimator", bound="SavedEstimator")

FILE = "estimator.json"
FORMAT, VERSION = "sikagp-estimator", 1
_PLAIN = ("n_features_in_", "weight_seen_", "_seeds", "_flat")
_ARRAYS = ("classes_", "feature_names_in_", "_ranges", "_offsets", "_importances")
_STANDARDISERS = ("_input", "_output")


class SavedEstimator(AdditiveEstimator):
    """Gives an estimator ``save`` and ``load``; predictions match to the last bit."""

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a fitted estimator to a folder: ``estimator.json`` and one model per member."""
        folder = Path(folder)
        content = self._describe()
        folder.mkdir(parents=True, exist_ok=True)
        for number, member in enumerate(self._members):
            member.save_pretrained(folder / f"member{number}")
        scratch = folder / f".{FILE}.{os.getpid()}"
        scratch.write_text(json.dumps(content, indent=2, default=_as_number), encoding="utf-8")
        os.replace(scratch, folder / FILE)
        return folder

    @classmethod
    def load(cls: type[Estimator], folder: str | os.PathLike[str]) -> Estimator:
        """Read what :meth:`save` wrote."""
        folder = Path(folder)
        content = _read(folder / FILE, cls.__name__)
        estimator = cls(**content["parameters"])
        for name, value in content["state"].items():
            if name in _ARRAYS and value is not None:
                value = np.array(value["values"], dtype=value["dtype"])
            elif name in _STANDARDISERS:
                value = Standardiser.from_config(value)
            setattr(estimator, name, value)
        members = [folder / f"member{i}" for i in range(content["members"])]
        estimator._members = [Predictor.from_pretrained(member) for member in members]
        for member in estimator._members:
            member.requires_grad_(False)
        return estimator

    def _describe(self) -> dict[str, Any]:
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        if isinstance(parameters["random_state"], np.random.RandomState):
            parameters["random_state"] = None
        if isinstance(parameters["hidden"], tuple):
            parameters["hidden"] = list(parameters["hidden"])
        state: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name in _PLAIN:
                state[name] = value
            elif name in _ARRAYS:
                state[name] = None if value is None else _encode(value)
            elif name in _STANDARDISERS:
                state[name] = value.get_config()
        return {
            "format": FORMAT,
            "format_version": VERSION,
            "class": type(self).__name__,
            "parameters": parameters,
            "members": len(self._members),
            "state": state,
        }


def _as_number(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"a {type(value).__name__} cannot be saved as JSON: {value!r}")


def _encode(array: np.ndarray) -> dict[str, Any]:
    return {"values": array.tolist(), "dtype": array.dtype.str if array.dtype != object else "O"}


def _read(path: Path, class_name: str) -> dict[str, Any]:
    if not path.is_file():
        raise ValueError(f"{path.parent} holds no saved estimator: it has no {FILE}")
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path} is truncated or not JSON: {error}") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"{path} does not belong to a sikagp estimator")
    if content.get("format_version") != VERSION:
        raise ValueError(
            f"{path} has format version {content.get('format_version')}, not {VERSION}"
        )
    if content["class"] != class_name:
        raise ValueError(f"{path} holds a {content['class']}, not a {class_name}")
    return content
