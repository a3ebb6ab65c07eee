"""The report: the paper's numbers beside ours, on one page that needs nothing else."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from experiment_cells import cell, recipe
from typer.testing import CliRunner

from sikagp import cli
from sikagp.experiments.figures.indexing import active_weights
from sikagp.experiments.paper import load_paper
from sikagp.experiments.report import write_report
from sikagp.experiments.report.collection import collect, group
from sikagp.experiments.report.tables import build_table, show_published

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PICTURE = bytes.fromhex("89504e470d0a1a0a")


def put(folder: Path, seed: int, results: dict, **changes) -> None:
    """Leave a record as a run would."""
    one = cell(folder, seed, **changes)
    place = folder / one.recipe.name / "smoke" / str(seed)
    place.mkdir(parents=True, exist_ok=True)
    record = {
        **one.description(),
        "results": results,
        "machine": {"processor": "Abacus", "cores": 2, "threads": 1, "python": "3.11"},
        "versions": {"sikagp": "0.1.0", "torch": "2.13"},
        "git": {"commit": "0123456789abcdef", "modified": True},
    }
    (place / "record.json").write_text(json.dumps(record))
    for name in results.get("figures", ()):
        (place / name).write_bytes(PICTURE)


@pytest.fixture
def folder(tmp_path) -> Path:
    for seed, value in enumerate((0.40, 0.50, 0.60)):
        history = [{"loss": 2.0}, {"loss": 1.0}]
        put(
            tmp_path,
            seed,
            {"rmse_raw": value, "nlpd_raw": None, "coverage": 0.9, "history": history},
        )
    put(tmp_path, 0, {"rmse_raw": 0.3}, name="uci/gas/knn", row="Nearest neighbours")
    put(
        tmp_path, 0, {"rmse_raw": 0.7}, name="uci/gas/default", row="DGP-SIKA (default)", differs=""
    )
    results = {"figures": ["basis.png"], "notes": "a < b"}
    for seed in range(2):  # the report shows pictures of the first
        put(tmp_path, seed, results, name="basis", table="basis", row="basis", data={})
    failed = tmp_path / "uci/gas/bad/smoke/0"
    failed.mkdir(parents=True)
    (failed / "failure.txt").write_text("Traceback\nValueError: it <broke>\n")
    return tmp_path


def test_runs_of_one_table_fill_another_that_says_so(tmp_path):
    history = [{"loss": 2.0}, {"loss": 1.0}]
    results = {"accuracy": 0.9, "auroc": 0.97, "history": history}
    names = {"name": "clinc150/sika", "table": "clinc150-ood", "row": "DKL-SIKA"}
    put(tmp_path, 0, results, data={"name": "clinc150"}, **names)
    text = write_report(tmp_path)[1].read_text()
    tables, missing = text.split("## Not run here")
    out_of_scope, in_scope = tables.split("## Table 5.")
    assert "0.9700" in out_of_scope
    assert "| DKL-SIKA | 1 smoke | 90.00 | 95.03 ± 0.08 |" in in_scope
    assert ("curves-clinc150-ood.png" in out_of_scope, "curves" in in_scope) == (True, False)
    assert "CLINC150" not in missing


def test_tables_have_the_papers_numbers_beside_ours(folder):
    paper = load_paper()
    table = build_table(paper.results["uci"], group(collect(folder), "uci"), paper)
    titles = [column.title for column in table.columns]
    assert titles == ["RMSE, raw units", "NLPD, raw units", "s / epoch", "95% coverage (%)"]
    gas = next(section for section in table.sections if section.data == "gas")
    rows = {line.row: line for line in gas.lines}
    assert list(rows) == ["DGP", "DGP-SIKA", "DGP-SIKA (default)", "Nearest neighbours"]
    ours = rows["DGP-SIKA"]
    assert (ours.runs, ours.scale) == (3, "smoke")
    assert (ours.entries[0].ours, ours.entries[0].paper) == ("0.500 ± 0.100", "0.53 ± 0.03")
    assert (ours.entries[1].ours, ours.entries[3].ours) == ("-", "90.0 ± 0.0")
    assert (rows["DGP"].runs, rows["DGP"].entries[0].paper) == (0, "0.54 ± 0.01")
    best = [line.row for line in gas.lines if line.entries[0].best]
    assert best == ["Nearest neighbours"]
    assert list(table.differences) == ["Made up."]
    assert set(table.differences["Made up."]) == {"gas: DGP-SIKA", "gas: Nearest neighbours"}


def test_published_numbers_keep_their_digits():
    assert show_published([0.8413, 0.0085]) == "0.8413 ± 0.0085"
    assert show_published(0.42) == "0.42"
    assert show_published([94.78, 0.3]) == "94.78 ± 0.30"
    assert show_published("O(SDM)") == "O(SDM)"


class Page(HTMLParser):
    """Collects what a page refers to, and its tags."""

    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.tags: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.links += [value or "" for name, value in attrs if name in ("src", "href")]


def test_the_page_stands_alone(folder):
    html, markdown = write_report(folder)
    text = html.read_text(encoding="utf-8")
    page = Page()
    page.feed(text)
    assert all(link.startswith(("data:image/png;base64,", "#")) for link in page.links)
    assert sum(link.startswith("data:") for link in page.links) == 2  # a figure, learning curves
    assert not page.tags & {"script", "link", "iframe"}
    assert 'name="viewport"' in text
    assert "a &lt; b" in text
    assert "ValueError: it &lt;broke&gt;" in text
    for words in ("0.500 ± 0.100", "paper 0.53 ± 0.03", "Made up.", "Abacus", "commit 0123456789"):
        assert words in text
    plain = markdown.read_text(encoding="utf-8")
    assert re.search(r"^\| DGP-SIKA \| 3 smoke \| 0\.500 ± 0\.100 \| 0\.53 ± 0\.03 \|", plain, re.M)
    assert "![basis, scale smoke, seed 0](basis/smoke/0/basis.png)" in plain
    assert "seed 1]" not in plain
    assert "<broke>" in plain
    lines = [line for line in plain.splitlines() if line.startswith("| ") and "gas" not in line]
    widths = {line.count("|") for line in lines[:4]}
    assert len(widths) == 1


def test_smoke_runs_are_marked_and_missing_parts_named(folder):
    html, _ = write_report(folder)
    text = html.read_text()
    assert "nothing about the methods" in text
    assert "<code>sikagp reproduce images</code>" in text


def run(*arguments: str):
    return CliRunner().invoke(cli.build_app(), list(arguments))


def test_reproduce_and_report_from_the_command_line(tmp_path):
    out = str(tmp_path / "out")
    for status in ("1 ran", "1 already there"):
        done = run("reproduce", "indexing", "--scale", "smoke", "--out", out)
        assert done.exit_code == 0, done.output
        assert status in done.output
    done = run("report", out)
    assert done.exit_code == 0
    html = Path(done.stdout.splitlines()[0])
    assert "Sparse indexing at level 3" in html.read_text()


def test_what_cannot_be_run_is_said():
    done = run("reproduce", "everything")
    assert done.exit_code == 2
    assert "nothing is called" in done.output
    assert run("reproduce").exit_code == 2
    done = run("reproduce", "time-cuda", "--scale", "smoke")
    assert (done.exit_code, "has no scale" in done.output) == (2, True)
    assert run("report", "nowhere").exit_code == 2
    assert run("reproduce", "basis", "--seeds", "0").exit_code == 2
    assert "Table 2" in run("reproduce", "--list").stdout


def test_devices_and_folders_are_checked_before_anything_runs(tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (tmp_path / "file").touch()
    for options, message in (
        (["--device", "tpu"], "error: device must be one of 'cpu', 'cuda', got 'tpu'\n"),
        (["--device", "cuda"], "error: device 'cuda' is not there: torch finds none"),
        (["--out", str(tmp_path / "file" / "runs")], "error: cannot write to"),
    ):
        for command in ("reproduce", "choose"):
            done = run(command, "basis", "--scale", "smoke", "--out", str(tmp_path), *options)
            assert done.exit_code == 2
            assert done.stderr.startswith(message)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_folder_without_runs_has_no_report(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing here")
    done = CliRunner().invoke(cli.build_app(), ["report", str(tmp_path)])
    assert done.exit_code == 2
    assert done.stderr == f"error: {tmp_path} holds no runs; `sikagp reproduce` writes some\n"
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_failures_set_the_exit_status(tmp_path, monkeypatch):
    failing = recipe("bad", experiment="moment", method="fail")
    monkeypatch.setattr("sikagp.experiments.recipe.load_recipes", lambda: [failing])
    done = run("reproduce", "bad", "--scale", "smoke", "--out", str(tmp_path))
    assert done.exit_code == 1
    assert "1 failed" in done.output


@pytest.mark.parametrize(
    ("x", "active"), [(0.3, [0, 1, 2, 3, 6]), (0.0, [0, 1, 2, 3, 5]), (1.0, [0, 1, 2, 4, 8])]
)
def test_active_weights(x, active):
    """At level 3 the weights are those of 0, 1 | 1/2 | 1/4, 3/4 | 1/8, 3/8, 5/8, 7/8."""
    assert active_weights(x, 3).tolist() == active
