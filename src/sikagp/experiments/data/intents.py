"""CLINC150: short requests of 150 intents, and requests that are out of scope."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from sikagp._typing import Int
from sikagp.experiments.data.errors import DataError
from sikagp.experiments.data.retrieval import obtain
from sikagp.experiments.data.sources import CLINC150
from sikagp.validation import check_choice

OUT_OF_SCOPE = "oos"
_FILE_NAMES = {"train": "train", "validation": "val", "test": "test"}


@dataclass(frozen=True)
class Utterances:
    """Texts and the numbers of their intents; -1 where a text is out of scope."""

    texts: tuple[str, ...]
    labels: Int[Tensor, " rows"]

    def __len__(self) -> int:
        return len(self.texts)


@dataclass(frozen=True)
class Intents:
    """The official splits.

    Attributes:
        names: of the intents, in alphabetical order; a label is an index into them.
        in_scope: ``"train"``, ``"validation"`` and ``"test"``.
        out_of_scope: the same splits of texts that belong to no intent.
    """

    names: tuple[str, ...]
    in_scope: Mapping[str, Utterances]
    out_of_scope: Mapping[str, Utterances]


def clinc150(version: str = "full") -> Intents:
    """Load CLINC150: ``"full"``, or ``"plus"`` with 250 out-of-scope texts to train, not 100."""
    path = obtain(CLINC150[check_choice("version", version, CLINC150)])
    content = json.loads(path.read_text(encoding="utf-8"))
    names = tuple(sorted({intent for _, intent in content["train"]}))
    if OUT_OF_SCOPE in names:
        raise DataError(f"{path}: {OUT_OF_SCOPE!r} appears among the intents of the training split")
    number = {name: index for index, name in enumerate(names)} | {OUT_OF_SCOPE: -1}
    parts = {
        key: Utterances(
            tuple(text for text, _ in rows), torch.tensor([number[intent] for _, intent in rows])
        )
        for key, rows in content.items()
    }
    return Intents(
        names,
        {split: parts[key] for split, key in _FILE_NAMES.items()},
        {split: parts[f"{OUT_OF_SCOPE}_{key}"] for split, key in _FILE_NAMES.items()},
    )
