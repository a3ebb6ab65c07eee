"""The command line, run in this process."""

import builtins
import json
import sys
from pathlib import Path

import pytest
import torch
from helpers import tenth_of_the_smallest
from typer.testing import CliRunner

import sikagp
from sikagp import cli
from sikagp.experiments import clone

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def run(*arguments: str):
    return CliRunner().invoke(cli.build_app(), list(arguments))


def test_help_names_the_commands() -> None:
    done = run("--help")
    assert done.exit_code == 0
    for command in ("bench", "choose", "info", "reproduce", "report"):
        assert command in done.output


def test_info_as_json() -> None:
    done = run("info", "--json")
    assert done.exit_code == 0
    found = json.loads(done.stdout)
    assert found["sikagp"] == sikagp.__version__
    assert found["torch"] == torch.__version__
    assert found["backend"] == "compiled"
    assert found["threads"] == torch.get_num_threads()
    assert found["devices"][0] == "cpu"


def test_info_as_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIKAGP_BACKEND", "reference")
    lines = run("info").stdout.splitlines()
    assert any(line.split() == ["backend", "reference"] for line in lines)
    assert any(
        line.split()[:2] == ["devices", "cpu" + ("," if "," in line else "")] for line in lines
    )


def test_bench_hands_its_arguments_on() -> None:
    done = run("bench", "--list", "latency", "memory")
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["latency", "memory"]


def test_bench_prefers_the_current_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "harness.py").touch()
    monkeypatch.chdir(tmp_path)
    assert clone.find_clone() == tmp_path


def test_bench_without_a_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(clone, "__file__", str(tmp_path / "a" / "b" / "c" / "clone.py"))
    done = run("bench", "--quick")
    assert done.exit_code == 1
    assert "clone" in done.stderr


def test_main_without_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without_typer(name: str, *args, **kwargs):
        if name == "typer":
            raise ImportError(name)
        return load(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_typer)
    with pytest.raises(SystemExit, match=r"pip install 'sikagp\[experiments\]'"):
        cli.main()


@pytest.mark.usefixtures("keep_denormals")
def test_main_runs_the_app(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["sikagp", "info", "--json"])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    assert stop.value.code == 0
    assert json.loads(capsys.readouterr().out)["sikagp"] == sikagp.__version__
    assert tenth_of_the_smallest() == 0


def test_fit_and_predict(tmp_path: Path) -> None:
    rows = "".join(f"{i},{i % 7},{2 * i + i % 7}.5\n" for i in range(40))
    data, model = tmp_path / "data.csv", tmp_path / "model"
    data.write_text(f"a,b,y\n{rows}")
    done = run("fit", str(data), "--target", "y", "--out", str(model), "--epochs", "1", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["task"] == "regression"
    done = run("predict", str(model), str(data))
    assert done.stdout.splitlines()[0] == "mean,std,lower,upper"
    assert len(done.stdout.splitlines()) == 41
    done = run("predict", str(model), str(data), "--json")
    wide = json.loads(done.stdout)
    assert len(wide) == 40
    narrow = json.loads(run("predict", str(model), str(data), "--json", "--level", "0.5").stdout)
    assert all(n["lower"] > w["lower"] for n, w in zip(narrow, wide, strict=True))
    done = run("predict", str(model), str(data), "--out", str(tmp_path / "p.parquet"))
    assert done.exit_code == 0
    assert (tmp_path / "p.parquet").is_file()


def test_bad_input_is_one_line_and_status_two(tmp_path: Path) -> None:
    data = tmp_path / "data.csv"
    data.write_text("a,y\n1,2\n")
    for arguments in (
        ("fit", str(tmp_path / "none.csv"), "--target", "y"),
        ("fit", str(data), "--target", "z"),
        ("fit", str(data), "--target", "y", "--out", str(tmp_path / "model")),
        ("fit", str(data), "--target", "y", "--drop", "y"),
        ("fit", str(data), "--target", "y", "--drop", "z"),
        ("fit", str(data), "--target", "y", "--categorical", "y"),
        ("fit", str(data), "--target", "y", "--task", "ranking"),
        ("fit", str(data), "--target", "y", "--missing", "ignore"),
        ("predict", str(tmp_path), str(data)),
        ("reproduce", "nothing"),
        ("choose", "nothing"),
        ("report", str(tmp_path / "none")),
    ):
        done = run(*arguments)
        assert done.exit_code == 2
        assert len(done.stderr.splitlines()) == 1
        assert done.stderr.startswith("error: ")
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_numbers_out_of_range_are_errors_of_use(tmp_path: Path) -> None:
    for option in (("--epochs", "0"), ("--seed", "-1"), ("--epochs", "many")):
        done = run("fit", str(tmp_path / "none.csv"), "--target", "y", *option)
        assert done.exit_code == 2
        assert option[0] in done.stderr
        assert "none.csv" not in done.stderr


def test_what_happened_is_said_in_words(tmp_path: Path) -> None:
    data, model = tmp_path / "data.csv", tmp_path / "new" / "model"
    data.write_text("a,c\n" + "".join(f"{i},{'xyyx'[i % 4]}\n" for i in range(40)))
    done = run("fit", str(data), "--target", "c", "--out", str(model), "--epochs", "1")
    assert done.exit_code == 0
    scores = json.loads((model / "metrics.json").read_text())
    assert "classification of 'c' from 1 feature, 40 rows" in done.stdout
    assert "scores on 8 held-out rows" in done.stdout
    assert f"accuracy                     {scores['scores']['accuracy']:.4g}\n" in done.stdout
    assert done.stdout.endswith(f"model: {model}\nreport: {model / 'report.html'}\n")
    done = run("predict", str(model), str(data), "--out", str(tmp_path / "p.csv"))
    assert done.stdout == f"40 predictions: {tmp_path / 'p.csv'}\n"
    done = run("predict", str(model), str(data), "--out", str(tmp_path / "p.xlsx"))
    assert done.exit_code == 2
    assert "must end in .csv" in done.stderr


def test_version() -> None:
    done = run("--version")
    assert (done.exit_code, done.stdout) == (0, f"sikagp {sikagp.__version__}\n")
