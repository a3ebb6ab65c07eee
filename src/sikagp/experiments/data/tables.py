"""UCI regression tables with their ten standard splits."""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from sikagp._typing import Bool, Float, Int
from sikagp.experiments.data.retrieval import obtain
from sikagp.experiments.data.sources import UCI
from sikagp.validation import check_choice


@dataclass(frozen=True)
class Table:
    """Inputs, targets and standard splits of a regression table, in the units of the file.

    Targets are centred, not scaled; those of ``protein`` are logarithms of one plus the RMSD.

    Attributes:
        name: of the table.
        x: inputs.
        y: targets.
        test_mask: which rows each split tests; every row is tested by exactly one split.
    """

    name: str
    x: Float[Tensor, "rows features"]
    y: Float[Tensor, " rows"]
    test_mask: Bool[Tensor, "rows splits"]

    @property
    def num_splits(self) -> int:
        """Number of standard splits."""
        return self.test_mask.shape[1]

    def split(self, index: int) -> tuple[Int[Tensor, " train"], Int[Tensor, " test"]]:
        """Return row numbers for training and for testing."""
        if not 0 <= index < self.num_splits:
            raise ValueError(f"expected a split from 0 to {self.num_splits - 1}, got {index}")
        tested = self.test_mask[:, index]
        return torch.nonzero(~tested).squeeze(-1), torch.nonzero(tested).squeeze(-1)


def uci(name: str) -> Table:
    """Load a table of github.com/treforevans/uci_datasets: gas, kin40k, parkinsons or protein."""
    values, mask = map(obtain, UCI[check_choice("name", name, UCI)])
    columns = torch.from_numpy(np.loadtxt(values, delimiter=",", dtype=np.float64))
    tested = torch.from_numpy(np.loadtxt(mask, delimiter=",", dtype=np.float64)).bool()
    return Table(name, columns[:, :-1], columns[:, -1], tested)
