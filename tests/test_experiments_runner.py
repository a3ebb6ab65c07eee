"""Runs: what is finished stays, what was killed goes on, and nobody writes over anybody."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
import torch
from experiment_cells import cell, made_up, recipe

from sikagp.experiments import runner
from sikagp.experiments.cell import plan
from sikagp.experiments.files import locked, write_whole
from sikagp.experiments.preparation import TableOptions, prepare
from sikagp.experiments.runner import Status, run_cell, run_cells
from sikagp.experiments.tasks import regression
from sikagp.mixtures import GaussianMixture
from sikagp.variational import GaussianMarginals

MOMENT = {"experiment": "moment"}


@pytest.fixture
def table(monkeypatch):
    monkeypatch.setattr(regression, "uci", made_up)


def read(folder: Path) -> dict:
    return json.loads((folder / "record.json").read_text())


def test_a_finished_cell_is_not_run_again(tmp_path):
    one = cell(tmp_path, **MOMENT)
    assert run_cell(one) == Status.RAN
    before = (one.folder / "record.json").read_bytes()
    assert run_cell(one) == Status.PRESENT
    assert (one.folder / "record.json").read_bytes() == before
    assert (one.folder / "seen.txt").read_text() == "run\n"


def test_the_record_says_where_numbers_come_from(tmp_path):
    one = cell(tmp_path, seed=3, **MOMENT)
    run_cell(one)
    record = read(one.folder)
    assert record["results"] == {"value": 3.0, "nothing": None}
    assert record["recipe"] == one.recipe.as_values()
    assert (record["scale"], record["seed"], record["device"]) == ("smoke", 3, "cpu")
    assert record["versions"]["torch"] == metadata.version("torch")
    assert record["machine"]["cores"] == os.cpu_count()
    assert set(record["git"]) == {"commit", "modified"}
    assert record["command"]
    assert record["seconds"] > 0
    assert record["resumed"] is False


def test_a_changed_recipe_is_run_afresh(tmp_path):
    one = cell(tmp_path, **MOMENT)
    run_cell(one)
    (one.folder / "left over").mkdir()
    changed = replace(one, recipe=replace(one.recipe, options={"level": 5}))
    assert run_cell(changed) == Status.RAN
    assert read(one.folder)["recipe"]["options"] == {"level": 5}
    assert not (one.folder / "left over").exists()
    assert (one.folder / "seen.txt").read_text() == "run\n"


def test_a_cell_that_runs_elsewhere_is_left_alone(tmp_path):
    one = cell(tmp_path, **MOMENT)
    with locked(one.folder / ".lock") as mine:
        assert mine
        assert run_cell(one) == Status.BUSY
    assert not (one.folder / "record.json").exists()
    assert run_cell(one) == Status.RAN


def test_failures_are_told_and_tried_again(tmp_path, caplog):
    bad, good = cell(tmp_path, seed=0, **MOMENT, method="fail"), cell(tmp_path, seed=1, **MOMENT)
    ended = run_cells([bad, good])
    assert list(ended.values()) == [Status.FAILED, Status.RAN]
    assert "as told" in (bad.folder / "failure.txt").read_text()
    assert "failed: as told" in caplog.text
    run_cell(bad)
    assert (bad.folder / "seen.txt").read_text() == "run\nrun\n"


def test_cells_run_at_the_same_time(tmp_path):
    cells = [cell(tmp_path, seed=seed, **MOMENT) for seed in range(3)]
    assert set(run_cells(cells, jobs=2).values()) == {Status.RAN}
    assert [read(one.folder)["results"]["value"] for one in cells] == [0.0, 1.0, 2.0]


def test_other_processes_flush_denormals(tmp_path):
    tiny = cell(tmp_path, **MOMENT, method="tiny")
    assert run_cells([tiny], jobs=2) == {tiny.label: Status.RAN}
    assert read(tiny.folder)["results"]["value"] == 0


def test_other_processes_share_the_threads(tmp_path, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 6)
    counting = cell(tmp_path, **MOMENT, method="threads")
    assert run_cells([counting], jobs=2) == {counting.label: Status.RAN}
    assert read(counting.folder)["results"]["value"] == 3


def test_a_killed_process_is_told_and_its_cell_goes_on_later(tmp_path, caplog):
    deadly = cell(tmp_path, **MOMENT, method="die")
    assert run_cells([deadly], jobs=2) == {deadly.label: Status.FAILED}
    assert "a process was killed" in caplog.text
    assert deadly.started()
    assert not deadly.finished()


def test_heads_wait_for_the_network_that_they_build_on(tmp_path):
    head = cell(tmp_path, seed=0, **MOMENT, data={"frozen": "images/full"})
    network = cell(tmp_path, seed=1, **MOMENT)
    given = cell(tmp_path, seed=2, **MOMENT, data={"frozen": "checkpoint"})
    ended = run_cells([head, network, given])
    assert list(ended) == [network.label, given.label, head.label]
    assert set(ended.values()) == {Status.RAN}


def test_a_broken_record_counts_as_none(tmp_path):
    one = cell(tmp_path, **MOMENT)
    run_cell(one)
    (one.folder / "record.json").write_text('{"recipe":')
    assert run_cell(one) == Status.RAN


def test_writing_is_all_or_nothing(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_whole(path, "old")
    monkeypatch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_whole(path, "new")
    assert path.read_text() == "old"


def test_plans_have_seeds_and_folders(tmp_path):
    some = recipe(scales={"cpu": {"seeds": 2}}), recipe("uci/gas/other", scales={"smoke": {}})
    cells = plan(some, "cpu", tmp_path)
    assert [one.folder for one in cells] == [tmp_path / "uci/gas/mine/cpu" / s for s in "01"]
    assert len(plan(some, "cpu", tmp_path, seeds=5)) == 5


def test_several_cells_at_a_time(tmp_path):
    """In real processes, with one cell asked for twice."""
    options = {"experiment": "figure", "method": "basis", "options": {"level": 2}}
    first, second = (replace(cell(tmp_path, seed, **options)) for seed in range(2))
    twin = replace(first, progress=True)
    ended = [status for _, status in runner._statuses([first, second, twin], 2)]
    assert ended.count(Status.RAN) == 2
    assert {*ended} - {Status.RAN} <= {Status.BUSY, Status.PRESENT}
    for one in (first, second):
        assert read(one.folder)["seed"] == one.seed
        assert (one.folder / "basis.png").stat().st_size > 10_000


def test_a_killed_cell_goes_on(tmp_path, table):
    script = Path(__file__).with_name("experiment_cells.py")
    command = [sys.executable, str(script), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr
    one, other = cell(tmp_path), cell(tmp_path / "other")
    assert not (one.folder / "record.json").exists()
    assert torch.load(one.folder / "run" / "last.ckpt", weights_only=True)["epoch"] == 1
    assert run_cell(one) == run_cell(other) == Status.RAN
    resumed, whole = read(one.folder), read(other.folder)
    assert resumed["resumed"] is True
    timings = ("fit_seconds", "predict_seconds", "seconds_per_epoch", "history")
    for name, value in whole["results"].items():
        if name not in timings:
            assert resumed["results"][name] == value, name
    losses = [[entry["loss"] for entry in r["results"]["history"]] for r in (resumed, whole)]
    assert losses[0] == losses[1]


def test_regression_scores(tmp_path, table):
    one = cell(tmp_path, seed=2)
    assert run_cell(one) == Status.RAN, (one.folder / "failure.txt").read_text()
    results = read(one.folder)["results"]
    scale = results["target_scale"]
    assert scale == pytest.approx(float(made_up().y.std()), rel=0.1)
    assert results["rmse_raw"] == pytest.approx(results["rmse"] * scale)
    assert results["nlpd_raw"] == pytest.approx(results["nlpd"] + math.log(scale))
    assert results["nlpd_mixture_raw"] == pytest.approx(results["nlpd_mixture"] + math.log(scale))
    assert 0 <= results["coverage"] <= 1
    assert results["epochs"] == len(results["history"]) == 4
    assert results["seconds_per_epoch"] == pytest.approx(results["fit_seconds"] / 4)


def test_scores_of_a_known_prediction():
    """A standard normal prediction of standard normal targets."""
    y = torch.randn(4000, generator=torch.Generator().manual_seed(0))
    zero = torch.zeros(1, 4000, 1)
    found = regression.score(GaussianMixture(GaussianMarginals(zero, zero + 1)), y, 2.0)
    entropy = 0.5 * math.log(2 * math.pi * math.e)
    assert found["rmse_raw"] == pytest.approx(2, abs=0.05)
    raw = -torch.distributions.Normal(0.0, 2.0).log_prob(2 * y).mean()
    assert found["nlpd_raw"] == pytest.approx(float(raw), rel=1e-6)
    assert found["nlpd"] == pytest.approx(entropy, abs=0.05)
    assert found["nlpd_mixture"] == pytest.approx(found["nlpd"], rel=1e-6)
    assert found["coverage"] == pytest.approx(0.95, abs=0.01)
    assert found["crps"] == pytest.approx(1 / math.sqrt(math.pi), abs=0.02)


def test_rows_are_standardised_by_those_that_are_learned_from():
    table, options = made_up(), TableOptions(name="made-up", validation=0.25)
    rows = prepare(table, options, seed=3)
    _, tested = table.split(3)
    assert [len(part[1]) for part in (rows.train, rows.validation, rows.test)] == [135, 45, 20]
    x, y = (torch.cat([a, b]) for a, b in zip(rows.train, rows.validation, strict=True))
    assert torch.allclose(x.mean(0), torch.zeros(3), atol=1e-5)
    assert torch.allclose(x.std(0, correction=0), torch.ones(3), atol=1e-5)
    assert float(y.std(correction=0)) == pytest.approx(1, abs=1e-5)
    back = rows.test[1].double() * rows.scale
    assert torch.allclose(back - back.mean(), table.y[tested] - table.y[tested].mean(), atol=1e-4)


def test_views_of_the_inputs_stand_side_by_side():
    options = TableOptions(name="x", inputs=["standard", "normal", "signed-log"], validation=0.0)
    rows = prepare(made_up(), options, seed=0)
    assert rows.validation is None
    assert rows.train[0].shape == (180, 9)
    assert rows.train[0][:, 3:6].abs().max() <= 3
    assert len(prepare(made_up(), TableOptions(name="x", rows=50), seed=0).train[1]) == 45


def test_options_of_tables_are_checked():
    with pytest.raises(ValueError, match="inputs must be one of 'standard'"):
        TableOptions(name="x", inputs=["ranks"])
    with pytest.raises(ValueError, match=r"validation share in \[0, 1\), got \['standard'\] and 1"):
        TableOptions(name="x", validation=1.0)
