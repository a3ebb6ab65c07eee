"""Whether data are on this machine, without reading them."""

from sikagp.experiments.data.location import find
from sikagp.experiments.data.mosaics import DERIVED_SVHN
from sikagp.experiments.data.sources import (
    CIFAR10,
    CIFAR100,
    CLINC150,
    FASHION_MNIST,
    MNIST,
    SVHN,
    UCI,
    Archive,
)

_FILES = {
    **{name: [source.path for source in sources] for name, sources in UCI.items()},
    "mnist": [source.path for pair in MNIST.values() for source in pair],
    "fashion_mnist": [source.path for source in FASHION_MNIST["test"]],
    "clinc150": [CLINC150["full"].path],
}
_ARCHIVES = {"cifar10": CIFAR10, "cifar100": CIFAR100}
# Other forms that loaders accept.
_INSTEAD = {"cifar10": "cifar10/test_batch.webp", "svhn": DERIVED_SVHN}


def is_present(name: str) -> bool:
    """Whether a data folder has a set by that name, in any of the forms that loaders accept."""
    if name in _INSTEAD and find(_INSTEAD[name]):
        return True
    if name in _ARCHIVES:
        return _holds(_ARCHIVES[name])
    files = [SVHN["test"].path] if name == "svhn" else _FILES.get(name)
    return files is not None and all(map(find, files))


def _holds(archive: Archive) -> bool:
    members = [source.path for source in archive.members.values()]
    return find(archive.source.path) is not None or all(map(find, members))
