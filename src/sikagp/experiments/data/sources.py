"""The registry: which files there are, where they come from, and what their bytes must be.

Paths are relative to a data folder; hashes are written ``algorithm:digest``, as pooch has them.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Source:
    """One file.

    Attributes:
        path: where it lies in a data folder.
        urls: official address first, then mirrors; none if it comes out of an archive.
        hash: such as ``sha256:...``.
        size: in bytes.
    """

    path: str
    urls: tuple[str, ...]
    hash: str
    size: int


@dataclass(frozen=True)
class Archive:
    """A tar archive and those of its members that are read, by their names in the archive."""

    source: Source
    members: dict[str, Source]


def _source(path: str, digest: str, size: int, *addresses: str) -> Source:
    """Source whose file has the same name at every address."""
    name = path.rpartition("/")[2]
    return Source(path, tuple(f"{at}/{name}" for at in addresses), f"sha256:{digest}", size)


_UCI = "https://raw.githubusercontent.com/treforevans/uci_datasets/f0737523712fe66a1640e4b980b927e8490b58eb/uci_datasets"
_UCI_FILES = {
    "gas": (
        ("bd82bee47199d3952bee30a59739794b26baa742e1da7f7bd42b9a34552321a1", 1102152),
        ("f171d06831e358dcb6cdf7cd168c2c9ed1768bcd805c8faa427c26099907e64e", 3314),
    ),
    "kin40k": (
        ("9bee7f2a9f39aa61a015f239378368601fb3978c5bb9a96433e88a55d40883ba", 1144601),
        ("d15fd645d0e81a9a17ce2d0b8dde470bb2efba4d5f417459965abe4b237e2aea", 49598),
    ),
    "parkinsons": (
        ("d20ffd9c9e5053a03fff0b770e7b0e076bf856a34538198303c897b6cc6addde", 334059),
        ("090794e6acb34ce9134ce2ac530b60c408adc646e45f9296adf0e3eb134f1a64", 7373),
    ),
    "protein": (
        ("f709d0107c3ee90ab019b9e5d77fc2ae182158958cb70b1903236a51334fd01b", 1621214),
        ("22afe05e8d17c428558d78a77efeecc08d58004b6c95741d1c533c3207c69fe9", 56820),
    ),
}
UCI_NAMES = tuple(_UCI_FILES)
# Values and test masks of every table.
UCI = {
    name: tuple(
        _source(f"uci/{name}/{file}.csv.gz", *known, f"{_UCI}/{name}")
        for file, known in zip(("data", "test_mask"), files, strict=True)
    )
    for name, files in _UCI_FILES.items()
}

_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
    "http://yann.lecun.com/exdb/mnist",
)
_FASHION = (
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
)


def _idx(folder: str, split: str, images: tuple, labels: tuple, at: tuple) -> tuple[Source, Source]:
    return (
        _source(f"{folder}/{split}-images-idx3-ubyte.gz", *images, *at),
        _source(f"{folder}/{split}-labels-idx1-ubyte.gz", *labels, *at),
    )


# Images and labels of every split.
MNIST = {
    "train": _idx(
        "mnist",
        "train",
        ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        _MNIST,
    ),
    "test": _idx(
        "mnist",
        "t10k",
        ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
        _MNIST,
    ),
}
FASHION_MNIST = {
    "train": _idx(
        "fashion_mnist",
        "train",
        ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        _FASHION,
    ),
    "test": _idx(
        "fashion_mnist",
        "t10k",
        ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
        _FASHION,
    ),
}

_KRIZ = "https://www.cs.toronto.edu/~kriz"
_CIFAR10_BATCHES = {
    "data_batch_1": "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5",
    "data_batch_2": "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed",
    "data_batch_3": "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67",
    "data_batch_4": "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48",
    "data_batch_5": "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add",
    "test_batch": "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b",
}
CIFAR10 = Archive(
    _source(
        "cifar10/cifar-10-binary.tar.gz",
        "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        170052171,
        _KRIZ,
    ),
    {
        f"cifar-10-batches-bin/{name}.bin": _source(
            f"cifar10/cifar-10-batches-bin/{name}.bin", digest, 30730000
        )
        for name, digest in _CIFAR10_BATCHES.items()
    },
)
CIFAR100 = Archive(
    _source(
        "cifar100/cifar-100-binary.tar.gz",
        "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
        168513733,
        _KRIZ,
    ),
    {
        "cifar-100-binary/train.bin": _source(
            "cifar100/cifar-100-binary/train.bin",
            "f31298fc616915fa142368359df1c4ca2ae984d6915ca468b998a5ec6aeebf29",
            153700000,
        ),
        "cifar-100-binary/test.bin": _source(
            "cifar100/cifar-100-binary/test.bin",
            "d8b1e6b7b3bee4020055f0699b111f60b1af1e262aeb93a0b659061746f8224a",
            30740000,
        ),
    },
)

_HOUSENUMBERS = "http://ufldl.stanford.edu/housenumbers"
SVHN = {
    "train": _source(
        "svhn/train_32x32.mat",
        "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8",
        182040794,
        _HOUSENUMBERS,
    ),
    "test": _source(
        "svhn/test_32x32.mat",
        "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b",
        64275384,
        _HOUSENUMBERS,
    ),
}

_CLINC = (
    "https://raw.githubusercontent.com/clinc/oos-eval/828f8093932c8fe6ca7936c3d2e52903b1c523de/data"
)
CLINC150 = {
    "full": _source(
        "clinc150/data_full.json",
        "36923c3705a59e08fe9c3883d8bc2dd966ef93e22cb78ac41171782a698d56e0",
        2495390,
        _CLINC,
    ),
    "plus": _source(
        "clinc150/data_oos_plus.json",
        "bfcca9ae515623541dc1983c94c4ed7cae9d26b42ae47d74b972e51bb6f7a21f",
        2509789,
        _CLINC,
    ),
}

_RESNETS = (
    "https://raw.githubusercontent.com/akamaster/pytorch_resnet_cifar10/master/pretrained_models"
)
# Weights of CIFAR-10 ResNets by depth; read them with torch.load(..., weights_only=True).
CIFAR_RESNETS = {
    depth: _source(f"weights/cifar_resnet/resnet{depth}-{digest[:8]}.th", digest, size, _RESNETS)
    for depth, digest, size in (
        (20, "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8", 1099231),
        (32, "d509ac1820d7f25398913559d7e81a13229b1e7adc5648e3bfa5e22dc137f850", 1890043),
        (44, "014dd6541728a1c700b1642ab640e211dc6eb8ed507d70697458dc8f8a0ae2e4", 2680855),
        (56, "4bfd97631478d6b638d2764fd2baff3edb1d7d82252d54439343b6596b9b5367", 3471733),
    )
}
