"""What commands print, without anything that trains."""

import json
import logging
from pathlib import Path

import pytest
import torch
import typer
from experiment_cells import cell

from sikagp.cli import environment, refusals, reproduction, tables, text
from sikagp.experiments import runner
from sikagp.experiments.runner import Status

METRICS = {
    "accuracy": 0.875,
    "ece": 0.031,
    "nll": 0.4567,
    "coverage": 0.9,
    "accuracy_of_answers": 0.95,
    "threshold": 0.62,
    "training_texts": 80,
    "test_texts": 16,
}


def test_values_stand_in_two_columns():
    lines = environment.as_lines({"a": 1, "long": ["x", "y"], "none": None}).splitlines()
    assert lines == ["a     1", "long  x, y", "none  None"]


def test_devices_are_listed(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    found = environment.describe_environment()
    assert found["devices"] == ["cpu", "cuda:0", "cuda:1", "mps"]
    assert json.loads(json.dumps(found)) == found
    assert set(environment.LIBRARIES) <= set(found)


@pytest.mark.parametrize("kind", [ValueError, TypeError, FileNotFoundError])
def test_errors_about_input_are_one_line(kind, capsys):
    with pytest.raises(typer.Exit) as stop, refusals.refusals():
        raise kind("the table\n  has no\trows")
    assert stop.value.exit_code == 2
    assert capsys.readouterr().err == "error: the table has no rows\n"


def test_other_errors_are_not_hidden():
    with pytest.raises(KeyError), refusals.refusals():
        raise KeyError("a mistake of ours")


def test_folders_are_looked_at_before_they_are_made(tmp_path, monkeypatch):
    refusals.check_folder(tmp_path / "new" / "deep")
    refusals.check_folder(tmp_path)
    assert not list(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    refusals.check_folder(Path("new"))
    monkeypatch.setattr(refusals.os, "access", lambda path, mode: False)
    with pytest.raises(ValueError, match="is no folder with write permission"):
        refusals.check_folder(tmp_path / "new")


def test_a_report_of_texts():
    lines = text.as_report("mail.csv", "tiny", ["a", "b", "c"], METRICS).splitlines()
    assert lines[0] == "# Text classifier from mail.csv"
    assert lines[2] == "3 labels, 80 training texts, encoder tiny."
    assert "entropy exceeds 0.620 nats" in lines[3]
    assert lines[5:7] == ["| on 16 test texts | |", "|---|---|"]
    assert lines[7:] == [
        "| accuracy | 87.5% |",
        "| calibration error (ECE) | 3.1% |",
        "| NLL | 0.457 |",
        "| answered | 90.0% |",
        "| accuracy of the answers | 95.0% |",
    ]


def test_texts_without_a_class_are_reported_if_there_were_some():
    found = {**METRICS, "unknown_declined": 0.25, "unknown_auroc": 0.8125}
    lines = text.as_report("", "tiny", ["a", "b"], found).splitlines()
    assert lines[0] == "# Text classifier"
    assert lines[-2:] == [
        "| declined, of texts without a class | 25.0% |",
        "| AUROC for finding them | 0.812 |",
    ]


@pytest.mark.parametrize(("features", "words"), [(1, "1 feature"), (7, "7 features")])
def test_a_fit_in_words(features, words):
    summary = {
        "task": "regression",
        "target": "pay",
        "features": features,
        "rows": 60,
        "seconds": 2.6,
        "test_rows": 12,
        "scores": {"rmse": 1.23456, "coverage_95": 1.0},
    }
    assert tables._in_words(summary, Path("m")).splitlines() == [
        f"regression of 'pay' from {words}, 60 rows, 3 s",
        "scores on 12 held-out rows:",
        "  rmse                         1.235",
        "  coverage_95                  1",
        "model: m",
        f"report: {Path('m/report.html')}",
    ]


def test_how_runs_ended_is_counted(tmp_path, monkeypatch, capsys):
    ended = {"a": Status.RAN, "b": Status.PRESENT, "c": Status.RAN, "d": Status.BUSY}
    monkeypatch.setattr(runner, "run_cells", lambda cells, *, jobs: ended)
    reproduction._run([cell(tmp_path)], tmp_path, 1)
    expected = f"2 ran, 1 already there, 1 running elsewhere; results are in {tmp_path}\n"
    assert capsys.readouterr().out == expected
    ended["e"] = Status.FAILED
    with pytest.raises(typer.Exit) as stop:
        reproduction._run([cell(tmp_path)], tmp_path, 1)
    assert stop.value.exit_code == 1
    assert "1 failed" in capsys.readouterr().out


def test_bars_are_for_one_run_at_a_time_on_a_terminal(monkeypatch):
    for terminal in (True, False):
        monkeypatch.setattr(reproduction.sys.stderr, "isatty", lambda value=terminal: value)
        assert reproduction._progress(1) == terminal
        assert not reproduction._progress(2)


def test_messages_are_shown_while_runs_last_and_not_after(capsys, caplog):
    caplog.set_level(logging.ERROR, "sikagp.experiments")
    logger = logging.getLogger("sikagp.experiments.anything")
    with reproduction._messages():
        logger.info("half way")
    logger.info("later")
    assert capsys.readouterr().err == "half way\n"
    assert logging.getLogger("sikagp.experiments").level == logging.ERROR
