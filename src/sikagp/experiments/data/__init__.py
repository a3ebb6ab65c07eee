"""Real data by name: found locally or downloaded, checked, and returned as tensors.

Folders are searched in this order: the one that the environment variable ``SIKAGP_DATA`` names,
then the user's cache, where downloads go.
"""

from sikagp.experiments.data.errors import DataError
from sikagp.experiments.data.images import (
    Images,
    cifar10,
    cifar100,
    fashion_mnist,
    mnist,
    svhn,
)
from sikagp.experiments.data.intents import Intents, Utterances, clinc150
from sikagp.experiments.data.location import find
from sikagp.experiments.data.retrieval import obtain
from sikagp.experiments.data.sources import UCI_NAMES, Archive, Source
from sikagp.experiments.data.tables import Table, uci

__all__ = [
    "UCI_NAMES",
    "Archive",
    "DataError",
    "Images",
    "Intents",
    "Source",
    "Table",
    "Utterances",
    "cifar10",
    "cifar100",
    "clinc150",
    "fashion_mnist",
    "find",
    "mnist",
    "obtain",
    "svhn",
    "uci",
]
