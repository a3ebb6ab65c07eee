"""Saving fitted estimators: JSON and safetensors in one folder, no pickle."""

import os
import shutil
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sikagp.estimators.components import AdditiveEstimator
from sikagp.estimators.preparation import Standardiser
from sikagp.manifests import check_class, read_manifest, write_manifest
from sikagp.models.predictor import Predictor
from sikagp.serialization import CONFIG

Estimator = TypeVar("Estimator", bound="SavedEstimator")

FILE, MEMBER = "estimator.json", "member"
FORMAT = "sikagp-estimator"
_PLAIN = ("n_features_in_", "weight_seen_", "temperature_", "_seeds", "_flat")
_ARRAYS = ("classes_", "feature_names_in_", "_ranges", "_offsets", "_importances")
_STANDARDISERS = ("_input", "_output")


class SavedEstimator(AdditiveEstimator):
    """Gives an estimator ``save`` and ``load``; predictions match to the last bit."""

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write a fitted estimator to a folder: ``estimator.json`` and one model per member.

        An estimator that is there is replaced at once, when everything else is written.
        """
        folder = Path(folder)
        content = self._describe()
        folder.mkdir(parents=True, exist_ok=True)
        old = {
            int(number): model.parent
            for model in folder.glob(f"{MEMBER}*/{CONFIG}")
            if (number := model.parent.name.removeprefix(MEMBER)).isdecimal()
        }
        first = 1 + max(old, default=-1)
        names = [f"{MEMBER}{first + number}" for number in range(len(self._members))]
        for name, member in zip(names, self._members, strict=True):
            member.save_pretrained(folder / name)
        write_manifest(folder / FILE, FORMAT, self, content | {"members": names})
        for path in old.values():
            shutil.rmtree(path)
        return folder

    @classmethod
    def load(cls: type[Estimator], folder: str | os.PathLike[str]) -> Estimator:
        """Read what :meth:`save` wrote."""
        folder = Path(folder)
        if not (folder / FILE).is_file():
            raise ValueError(f"{folder} holds no saved estimator: it has no {FILE}")
        content = read_manifest(folder / FILE, FORMAT)
        check_class(folder, content, cls.__name__)
        parameters = content["parameters"]
        if isinstance(parameters["hidden"], list):
            parameters["hidden"] = tuple(parameters["hidden"])
        estimator = cls(**parameters)
        for name, value in content["state"].items():
            if name in _ARRAYS and value is not None:
                value = np.array(value["values"], dtype=value["dtype"])
            elif name in _STANDARDISERS:
                value = Standardiser.from_config(value)
            setattr(estimator, name, value)
        members = [folder / str(name) for name in content["members"]]
        estimator._members = [Predictor.from_pretrained(member) for member in members]
        for member in estimator._members:
            member.requires_grad_(False)
        return estimator

    def _describe(self) -> dict[str, Any]:
        check_is_fitted(self)
        parameters = self.get_params(deep=False)
        if isinstance(parameters["random_state"], np.random.RandomState):
            parameters["random_state"] = None
        parameters = {name: _plain(name, value) for name, value in parameters.items()}
        state: dict[str, Any] = {}
        for name, value in vars(self).items():
            if name in _PLAIN:
                state[name] = value
            elif name in _ARRAYS:
                state[name] = None if value is None else _encode(value)
            elif name in _STANDARDISERS:
                state[name] = value.get_config()
        return {"parameters": parameters, "state": state}


def _plain(name: str, value: Any) -> Any:
    """A parameter as a JSON value."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, tuple | list):
        return [_plain(name, part) for part in value]
    if not isinstance(value, str | int | float | None):
        raise TypeError(f"{name}={value!r} cannot be saved: a file holds names and numbers only")
    return value


def _encode(array: np.ndarray) -> dict[str, Any]:
    return {"values": array.tolist(), "dtype": array.dtype.str if array.dtype != object else "O"}
