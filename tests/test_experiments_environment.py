"""Where numbers come from, where data lie, and what can be run."""

import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from experiment_cells import recipe

from sikagp.experiments import clone, environment
from sikagp.experiments.data import DataError, location, presence
from sikagp.experiments.data.sources import CIFAR10, MNIST, SVHN, UCI, Source
from sikagp.experiments.environment import describe_git, describe_machine, describe_versions
from sikagp.experiments.files import locked
from sikagp.experiments.listing import Listed, listing
from sikagp.experiments.preparation import TableOptions, prepare
from sikagp.experiments.recipe import RecipeError
from tests.experiment_cells import made_up


def git(folder: Path, *arguments: str) -> str:
    names = ["-c", "user.name=me", "-c", "user.email=me@example.org"]
    command = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_the_state_of_the_source_is_that_of_git(tmp_path):
    assert describe_git(tmp_path) == {"commit": None, "modified": None}
    git(tmp_path, "init", "-q")
    (tmp_path / "file").write_text("a")
    (tmp_path / ".gitignore").write_text("ignored/\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    commit = git(tmp_path, "rev-parse", "HEAD")
    assert describe_git(tmp_path) == {"commit": commit, "modified": False}
    (tmp_path / "file").write_text("b")
    assert describe_git(tmp_path) == {"commit": commit, "modified": True}
    (tmp_path / "ignored").mkdir()
    assert describe_git(tmp_path / "ignored") == {"commit": None, "modified": None}


def test_a_machine_without_git_says_nothing(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert describe_git() == {"commit": None, "modified": None}


def test_the_machine_and_its_versions():
    found = describe_machine("cpu")
    assert found["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["threads"] == torch.get_num_threads()
    assert found["memory_bytes"] > 2**20
    assert found["processor"]
    assert "accelerator" not in found
    assert describe_versions(["torch", "no-such-library"]) == {
        "torch": torch.__version__,
        "no-such-library": None,
    }


def test_processors_are_named_where_the_system_does_not(monkeypatch):
    monkeypatch.setattr(environment.Path, "exists", lambda path: False)
    monkeypatch.setattr(environment.platform, "processor", lambda: "")
    monkeypatch.setattr(environment.platform, "machine", lambda: "abacus64")
    assert describe_machine("cpu")["processor"] == "abacus64"


def test_a_lock_waits_for_its_owner(tmp_path):
    path, order, inside = tmp_path / "deep" / "lock", [], threading.Event()

    def owner():
        with locked(path) as mine:
            order.append(("owner", mine))
            inside.set()
            with locked(path, wait=False) as second:
                order.append(("impatient", second))

    with locked(path) as mine:
        assert mine
        thread = threading.Thread(target=owner)
        thread.start()
        assert not inside.wait(0.05)
        order.append(("first", mine))
    thread.join(5)
    assert order == [("first", True), ("owner", True), ("impatient", False)]


def test_clones_are_found_and_their_modules_imported(tmp_path, monkeypatch):
    suite = tmp_path / "benchmarks"
    suite.mkdir()
    (suite / "harness.py").write_text("NAME = 'mine'\n")
    (suite / "__init__.py").touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)
    root = clone.find_clone()
    assert root == tmp_path
    assert clone.load_suite(root, "harness").NAME == "mine"
    assert sys.path.count(str(tmp_path)) == 1
    clone.load_suite(root, "harness")
    assert sys.path.count(str(tmp_path)) == 1
    for name in [name for name in sys.modules if name.partition(".")[0] == "benchmarks"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "data").mkdir()
    monkeypatch.setenv("SIKAGP_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


def put(folder: Path, path: str) -> None:
    (folder / path).parent.mkdir(parents=True, exist_ok=True)
    (folder / path).touch()


def test_data_are_sought_in_the_named_folder_and_then_in_the_cache(folder, monkeypatch):
    cache = location.cache_folder()
    assert location.data_folders() == [folder, cache]
    assert location.find("a.csv") is None
    put(cache, "a.csv")
    assert location.find("a.csv") == cache / "a.csv"
    put(folder, "a.csv")
    assert location.find("a.csv") == folder / "a.csv"
    monkeypatch.setenv("SIKAGP_DATA", "")
    assert location.data_folders() == [cache]
    monkeypatch.setenv("SIKAGP_DATA", str(folder / "none"))
    with pytest.raises(DataError, match="which is not a folder; correct or unset it"):
        location.find("a.csv")


def test_the_home_folder_may_be_written_short(folder, monkeypatch):
    monkeypatch.setenv("HOME", str(folder.parent))
    monkeypatch.setenv("SIKAGP_DATA", "~/data")
    assert location.data_folders()[0] == folder


def test_advice_names_an_address_or_the_archive(folder):
    source = Source("a/b.csv", ("https://here/b.csv", "https://there/b.csv"), "sha256:0", 1)
    advice = location.advice(source)
    assert advice.startswith("get https://here/b.csv and save it as ")
    assert str(location.cache_folder() / "a/b.csv") in advice
    assert "get its archive" in location.advice(replace(source, urls=()))


def test_data_are_present_if_all_their_files_are(folder):
    names = ("gas", "mnist", "cifar10", "svhn", "nothing")
    assert [presence.is_present(name) for name in names] == [False] * 5
    first, second = (source.path for source in UCI["gas"])
    put(folder, first)
    assert not presence.is_present("gas")
    put(folder, second)
    assert presence.is_present("gas")
    assert not presence.is_present("kin40k")
    paths = [source.path for pair in MNIST.values() for source in pair]
    for path in paths[:-1]:
        put(folder, path)
    assert not presence.is_present("mnist")
    put(folder, paths[-1])
    assert presence.is_present("mnist")


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("cifar10", [CIFAR10.source.path]),
        ("cifar10", [source.path for source in CIFAR10.members.values()]),
        ("cifar10", ["cifar10/test_batch.webp"]),
        ("svhn", [SVHN["test"].path]),
        ("svhn", ["svhn_derived/svhn_test_first10k.webp"]),
    ],
)
def test_images_may_come_in_several_forms(folder, name, paths):
    for path in paths[:-1]:
        put(folder, path)
    assert not presence.is_present(name)
    put(folder, paths[-1])
    assert presence.is_present(name)


def test_listings_read_well(folder):
    one = Listed("uci", "Table 2", "regression", 1, ["cpu (1 h)", "smoke (seconds)"], [])
    assert str(one).splitlines()[1].strip() == "1 recipe; cpu (1 h), smoke (seconds)"
    assert "2 recipes;" in str(replace(one, recipes=2))
    assert str(replace(one, recipes=0)).endswith("no recipe yet")
    assert str(replace(one, absent=["gas"])).endswith("not on this machine, to be downloaded: gas")
    scales = {"smoke": {}, "cpu": {}}
    entry = {e.name: e for e in listing([recipe(scales=scales), recipe(scales={"cpu": {}})])}["uci"]
    assert entry.recipes == 2
    assert [scale.partition(" ")[0] for scale in entry.scales] == ["cpu", "smoke"]
    assert entry.absent == ["gas"]


def test_recipes_as_values_are_what_json_gives_back():
    mine = recipe(options={"hidden": (2, 3)}, training={"trainable": {0: "none", 3: "all"}})
    values = mine.as_values()
    assert values["options"] == {"hidden": [2, 3]}
    assert values["training"] == {"trainable": {"0": "none", "3": "all"}}
    assert mine.at("smoke").scales == {}
    with pytest.raises(RecipeError, match="there are: none"):
        replace(mine, scales={}).at("cpu")


def test_inputs_by_rank_are_normal_and_long_tails_are_pulled_in():
    table = made_up(rows=2000)
    wild = replace(table, x=torch.exp(3 * table.x / table.x.std()))
    options = TableOptions(name="x", inputs=["normal", "signed-log"], validation=0.0)
    x = prepare(wild, options, seed=0).train[0]
    ranks, pulled = x[:, :3], x[:, 3:]
    normal = torch.distributions.Normal(0.0, 1.0)
    quantiles = torch.tensor([0.1, 0.5, 0.9])
    expected = normal.icdf(quantiles).unsqueeze(-1).expand(-1, 3)
    torch.testing.assert_close(ranks.quantile(quantiles, dim=0), expected, atol=0.05, rtol=0)
    torch.testing.assert_close(pulled.mean(0), torch.zeros(3), atol=1e-4, rtol=0)
    torch.testing.assert_close(pulled.std(0), torch.ones(3), atol=1e-2, rtol=0)
    standard = prepare(wild, TableOptions(name="x", validation=0.0), seed=0).train[0]
    assert pulled.abs().max() < standard.abs().max()
    in_order = pulled.gather(0, standard.argsort(0))
    assert in_order.diff(dim=0).min() > -1e-5


def test_rows_depend_on_the_seed_beyond_the_split():
    table, options = made_up(), TableOptions(name="x")
    first, again, later = (prepare(table, options, seed=seed) for seed in (0, 0, 10))
    assert torch.equal(first.train[0], again.train[0])
    # Ten splits: the eleventh seed has the first split, and other held-out rows.
    torch.testing.assert_close(first.test[0], later.test[0])
    assert not torch.equal(first.validation[1], later.validation[1])
    third = prepare(table, options, seed=3).test[1]
    expected = table.y[table.split(3)[1]]
    assert torch.equal(third.argsort(), expected.argsort())


def test_calibration_needs_held_out_rows():
    with pytest.raises(ValueError, match="calibrate needs held-out rows"):
        TableOptions(name="x", validation=0.0, calibrate=True)
