"""What autograd functions of small layers have in common."""

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

Forward = TypeVar("Forward", bound=Callable[..., Any])


def with_signature(forward: Forward) -> Forward:
    """Keep the signature of a forward pass, which torch asks for in every call.

    To find it anew takes some fifty microseconds, as long as all else that a call costs.
    """
    forward.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]
    return forward
