"""Imports point one way, and importing the package is cheap."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import sikagp

ROOT = Path(sikagp.__file__).parent

# Each row may import from itself and from the rows above it.
LAYERS = [
    ("_typing", "grid", "precision", "validation", "caching", "writing", "manifests", "kernels"),
    ("tree",),
    ("basis", "table"),
    ("ops",),
    ("variational", "domains"),
    ("plans", "draws", "additive"),
    ("layers",),
    ("mixtures", "serialization", "integrations", "metrics", "plots"),
    ("likelihoods",),
    ("predictions", "calibration"),
    ("models",),
    ("objectives",),
    ("training", "integrations/transformers"),
    ("estimators",),
    ("tabular",),
    ("experiments",),
    ("cli",),
]
PLACE = {name: place for place, names in enumerate(LAYERS) for name in names}

HEAVY = {
    *("gpytorch", "linear_operator", "numba", "scipy", "sklearn", "pandas", "matplotlib"),
    *("lightning", "pytorch_lightning", "torchmetrics", "tensorboard", "typer"),
    *("safetensors", "huggingface_hub", "transformers", "peft"),
}

MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def owner(path: Path) -> str:
    """The top-level module that a file belongs to, or a package inside it with its own place."""
    if path.parent.as_posix() in PLACE:
        return path.parent.as_posix()
    return path.parts[0].removesuffix(".py")


def imported(path: Path) -> Iterator[str]:
    """Full names of what a file imports, wherever in the file."""
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(path: Path) -> Iterator[str]:
    """Top-level modules of the package that a file imports."""
    for name in imported(path):
        package, *rest = name.split(".")
        if package == "sikagp" and rest != ["__version__"]:
            yield rest[0] if rest else "__init__"


def test_the_check_sees_imports():
    assert {"_typing", "ops", "basis", "tree"} <= set(own_imports(Path("plans.py")))
    assert "gpytorch.distributions.MultitaskMultivariateNormal" in set(
        imported(Path("variational.py"))
    )


@pytest.mark.parametrize("path", MODULES, ids=str)
def test_imports_point_one_way(path):
    if path == Path("__init__.py"):
        return
    assert owner(path) in PLACE, f"{path} has no place in LAYERS"
    for name in own_imports(path):
        assert name in PLACE, f"{path} imports {name!r}; import from the module that defines it"
        assert PLACE[name] <= PLACE[owner(path)], f"{path} imports {name}, which comes later"


def test_nothing_in_the_foundation_imports_heavy_libraries_at_the_top():
    for path in MODULES:
        if PLACE.get(owner(path), len(LAYERS)) > PLACE["layers"] or owner(path) == "ops":
            continue
        tree = ast.parse((ROOT / path).read_text())
        names = {
            alias.name if isinstance(node, ast.Import) else str(node.module)
            for node in tree.body
            if isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names
        }
        assert not {name.split(".")[0] for name in names} & HEAVY, path


def test_importing_the_package_loads_no_heavy_library():
    code = "import sys, sikagp; print(*{name.split('.')[0] for name in sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert {"sikagp", "torch"} <= loaded
    assert not loaded & HEAVY


def test_every_public_name_exists():
    assert len(set(sikagp.__all__)) == len(sikagp.__all__)
    assert all(hasattr(sikagp, name) for name in sikagp.__all__)
