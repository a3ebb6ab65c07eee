"""Shape hints: jaxtyping's when it is installed (the tests check them), inert otherwise."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Shaped, UInt8
else:
    try:
        from jaxtyping import Bool, Float, Int, Shaped, UInt8
    except ImportError:

        class _Unchecked:
            """``Float[Tensor, "rows columns"]`` is then just ``Tensor``."""

            def __class_getitem__(cls, item):
                return item[0]

        Bool = Float = Int = Shaped = UInt8 = _Unchecked

__all__ = ["Bool", "Float", "Int", "Shaped", "UInt8"]
