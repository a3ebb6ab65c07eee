"""The one error of the data registry."""


class DataError(RuntimeError):
    """A file is missing or broken; the message says what to do about it."""
