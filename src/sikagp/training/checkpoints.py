"""Resume checkpoints: private to a run; a kill at any moment leaves a whole file."""

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.io import TorchCheckpointIO

from sikagp.writing import replacing

CHECKPOINT = "last.ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes beside the target and renames.

    Lightning's own writer goes through the system's temporary folder; if that is on another
    device, its last move is a copy and can be cut short.
    """

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None
    ) -> None:
        """Write a checkpoint that is either absent or complete."""
        with replacing(Path(path)) as scratch:
            torch.save(checkpoint, scratch)


def keep_last(folder: Path) -> ModelCheckpoint:
    """Replace the checkpoint in a folder at the end of every epoch."""
    return ModelCheckpoint(
        dirpath=folder,
        filename=Path(CHECKPOINT).stem,
        save_top_k=1,
        every_n_epochs=1,
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )
