"""A value that is remembered until one of the tensors it was computed from changes."""

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Value = TypeVar("Value")
_PROBES = 64


class TensorCache(Generic[Value]):
    """Holds one value, keyed by the storage, version and a few sampled entries of its sources.

    In-place operations raise a tensor's version, and replacing its data changes the storage, which
    the cache keeps alive so that its address is not given out again. Edits through ``.data`` leave
    no trace in either; on the CPU they show in the sampled entries if they touch the whole tensor.
    """

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Forget the value."""
        self._value: Value | None = None
        self._sources: list[Tensor] = []
        self._probes: list[Any] = []
        self._key: list[tuple[Any, ...]] = []

    def get(self, sources: Sequence[Tensor], compute: Callable[[], Value]) -> Value:
        """Return the remembered value if it still holds, and otherwise compute it."""
        if any(source.is_inference() for source in sources):
            return compute()  # such tensors have no version
        if self._value is None or self._key != self._current_key(sources):
            # A table made in inference mode could not be used by autograd later.
            with torch.inference_mode(False), torch.no_grad():
                self._value = compute()
            self._sources = [source.detach() for source in sources]
            self._probes = [_probe(source) for source in self._sources]
            self._key = self._current_key(sources)
        return self._value

    def _current_key(self, sources: Sequence[Tensor]) -> list[tuple[Any, ...]]:
        if len(self._probes) != len(sources):
            return []
        return [
            (source.data_ptr(), source._version, source.dtype, source.device, probe.tobytes())
            for source, probe in zip(sources, self._probes, strict=True)
        ]


def _probe(source: Tensor) -> Any:
    """View a few evenly spaced entries; a view of the CPU's memory follows later edits."""
    flat = source.reshape(-1)[:: max(1, source.numel() // _PROBES)]
    if source.device.type != "cpu" or not source.is_contiguous():
        flat = flat.new_empty(0, device="cpu")
    return (flat.view(torch.int16) if flat.dtype == torch.bfloat16 else flat).numpy()
