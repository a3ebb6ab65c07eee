"""Rows for training: tensors or a dataset, split and ordered by the seed alone.

The order of an epoch depends on the seed and the number of the epoch, never on what was drawn
before, so a run that is resumed or spread over processes sees the same batches.
"""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler, Subset, default_collate

from sikagp._typing import Shaped
from sikagp.training.configuration import TrainingConfig

Rows = Sequence[Tensor] | Dataset[Any]


class TensorRows(Dataset[Any]):
    """Rows of several tensors: (x, y) or (x, y, weight); a batch is one look-up per tensor."""

    def __init__(self, *tensors: Shaped[Tensor, "..."]) -> None:
        for tensor in tensors:
            if not isinstance(tensor, Tensor):
                raise TypeError(f"expected rows as torch.Tensor, got {type(tensor).__name__}")
        lengths = [len(tensor) for tensor in tensors]
        if not 2 <= len(tensors) <= 3 or len(set(lengths)) != 1:
            raise ValueError(
                "expected x, y and perhaps weights with as many rows each, "
                f"got {len(tensors)} tensors of {lengths} rows"
            )
        # x is the model's to check.
        for name, tensor in zip(("y", "weight"), tensors[1:], strict=False):
            good = tensor.isfinite()
            if not bool(good.all()):
                bad = len(tensor) - int(good.reshape(len(tensor), -1).all(1).sum())
                raise ValueError(f"{bad} of {len(tensor)} rows of {name} hold NaN or infinity")
        self.tensors = tensors

    def __len__(self) -> int:
        return len(self.tensors[0])

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return tuple(tensor[index] for tensor in self.tensors)

    def __getitems__(self, index: list[int]) -> tuple[Tensor, ...]:
        rows = torch.as_tensor(index)
        return tuple(tensor[rows] for tensor in self.tensors)


def as_dataset(rows: Rows) -> Dataset[Any]:
    """See tensors as a dataset; a dataset passes through."""
    if isinstance(rows, Tensor) or not isinstance(rows, Sequence | Dataset):
        raise TypeError(f"expected tensors (x, y) or a dataset, got {type(rows).__name__}")
    dataset = rows if isinstance(rows, Dataset) else TensorRows(*rows)
    if len(dataset) == 0:  # type: ignore[arg-type]
        raise ValueError("training needs at least one row")
    return dataset


class RowsModule(LightningDataModule):
    """Loaders for training and validation."""

    def __init__(self, train: Rows, validation: Rows | None, config: TrainingConfig) -> None:
        super().__init__()
        self.config = config
        self.train = as_dataset(train)
        self.validation = None if validation is None else as_dataset(validation)
        if self.validation is None and config.validation > 0:
            self.train, self.validation = split(self.train, config.validation, config.seed)

    @property
    def num_rows(self) -> int:
        """Number of training rows."""
        return len(self.train)  # type: ignore[arg-type]

    def train_dataloader(self) -> DataLoader[Any]:
        """Batches in the order of the current epoch; processes share each batch between them."""
        return self._loader(self.train, shuffle=True)

    def val_dataloader(self) -> DataLoader[Any] | list[Any]:
        """Held-out rows in their own order, if there are any."""
        return [] if self.validation is None else self._loader(self.validation, shuffle=False)

    def _loader(self, dataset: Dataset[Any], *, shuffle: bool) -> DataLoader[Any]:
        processes = self.trainer.world_size if self.trainer else 1
        sampler: DistributedSampler[Any] = DistributedSampler(
            dataset,
            num_replicas=processes,
            rank=self.trainer.global_rank if self.trainer else 0,
            shuffle=shuffle,
            seed=self.config.seed,
        )
        return DataLoader(
            dataset,
            batch_size=max(1, self.config.batch_size // processes),
            sampler=sampler,
            num_workers=self.config.num_workers,
            persistent_workers=self.config.num_workers > 0,
            collate_fn=as_they_are if isinstance(dataset, TensorRows) else default_collate,
        )


def as_they_are(batch: Any) -> Any:
    """Collate nothing: rows of tensors come as whole batches."""
    return batch


def split(dataset: Dataset[Any], fraction: float, seed: int) -> tuple[Dataset[Any], Dataset[Any]]:
    """Hold out a random fraction, at least one row on each side."""
    total = len(dataset)  # type: ignore[arg-type]
    if total < 2:
        raise ValueError("one row cannot be split; train without validation")
    held = min(max(1, round(fraction * total)), total - 1)
    order = torch.randperm(total, generator=torch.Generator().manual_seed(seed))
    kept, out = order[held:].sort().values, order[:held].sort().values
    if isinstance(dataset, TensorRows):
        return (
            TensorRows(*(tensor[kept] for tensor in dataset.tensors)),
            TensorRows(*(tensor[out] for tensor in dataset.tensors)),
        )
    return Subset(dataset, kept.tolist()), Subset(dataset, out.tolist())
