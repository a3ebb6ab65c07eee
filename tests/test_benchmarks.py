"""The benchmark suite: its statistics on a fake clock, and what it writes."""

import json
import math
from pathlib import Path
from types import ModuleType

import pytest
import torch

from benchmarks import __main__ as command
from benchmarks import harness, latency, report, results, runner, scaling, targets, workloads
from benchmarks.harness import Alternative, Comparison, Settings, Spread, compare
from benchmarks.tables import Table, format_bytes, format_ratio, format_seconds

ROOT = Path(__file__).parents[1]
SETTINGS = Settings(quick=True, threads=1)

# GPyTorch and matplotlib still use what their own libraries deprecate.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


class FakeClock:
    """Time that passes only when an alternative says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr(harness, "clock", lambda: self.now)

    def takes(self, *seconds: float):
        """Return a call that takes these times in turn, the last for ever after."""
        left = list(seconds)

        def call() -> None:
            self.now += left.pop(0) if len(left) > 1 else left[0]

        return call


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    return FakeClock(monkeypatch)


# Statistics


def test_spread_of_one_and_of_many() -> None:
    assert Spread.of([2.0]) == (2.0, 2.0, 2.0)
    assert Spread.of([1.0, 2.0, 3.0, 4.0, 100.0]) == (3.0, 2.0, 4.0)


def test_times_and_ratios_on_a_fake_clock(clock: FakeClock) -> None:
    found = compare({"slow": clock.takes(0.5), "fast": clock.takes(0.25)}, SETTINGS)
    assert found.seconds("slow") == pytest.approx((0.5, 0.5, 0.5))
    assert found.ratio("slow", "fast") == pytest.approx((2.0, 2.0, 2.0))
    assert len(found.samples["slow"]) >= SETTINGS.min_rounds(0.5)


def test_ratios_are_taken_within_rounds(clock: FakeClock) -> None:
    drift = [0.1, 0.1, 0.1, 0.2, 0.9]  # after two calls of warm-up the machine slows down
    calls = {"a": clock.takes(*drift), "b": clock.takes(*(2 * t for t in drift))}
    assert compare(calls, SETTINGS).ratio("b", "a") == pytest.approx((2.0, 2.0, 2.0))


def test_one_disturbed_round_changes_no_median(clock: FakeClock) -> None:
    calls = {"a": clock.takes(0.1), "b": clock.takes(0.1, 0.1, 0.1, 9.0, 0.1)}
    assert compare(calls, SETTINGS).ratio("b", "a").median == pytest.approx(1.0)


def test_first_call_does_not_count(clock: FakeClock) -> None:
    found = compare({"compiles": clock.takes(30.0, 0.1)}, SETTINGS)
    assert found.seconds("compiles").q75 == pytest.approx(0.1)


def test_an_alternative_without_enough_memory_is_left_out() -> None:
    found = compare({"huge": lambda: torch.empty(2**60), "small": lambda: None}, SETTINGS)
    assert found.skipped == {"huge": "runs out of memory"}
    with pytest.raises(RuntimeError, match="memory"):
        compare({"huge": lambda: torch.empty(2**60)}, SETTINGS, limited=False)


def test_short_calls_are_bundled(clock: FakeClock) -> None:
    found = compare({"short": clock.takes(1e-5)}, SETTINGS)
    assert found.calls["short"] == 100
    assert found.seconds("short").median == pytest.approx(1e-5)


def test_slow_alternatives_sit_out_once_they_had_their_share(clock: FakeClock) -> None:
    found = compare({"slow": clock.takes(0.4), "fast": clock.takes(0.01)}, SETTINGS)
    timed = [value for value in found.samples["slow"] if not math.isnan(value)]
    assert len(timed) == SETTINGS.min_rounds(0.4) < len(found.samples["fast"])
    assert found.ratio("slow", "fast").median == pytest.approx(40.0)


def test_too_slow_and_too_large_alternatives_are_left_out(clock: FakeClock) -> None:
    calls = {
        "large": Alternative(clock.takes(0.1), num_bytes=2**50),
        "many draws": Alternative(clock.takes(0.1), num_draws=10**12),
        "slow": Alternative(clock.takes(100.0)),
        "fine": Alternative(clock.takes(0.1)),
    }
    found = compare(calls, SETTINGS)
    assert set(found.samples) == {"fine"}
    assert "GiB" in found.skipped["large"]
    assert "100.0 s" in found.skipped["slow"]
    assert "at least" in found.skipped["many draws"]
    assert set(compare(calls, SETTINGS, limited=False).samples) == set(calls)


def test_summary_is_json_with_ratios_to_the_baseline() -> None:
    found = Comparison({"a": [1.0, 2.0], "b": [2.0, math.nan]}, {"a": 1, "b": 3}, {"c": "why"})
    summary = json.loads(json.dumps(found.summary("a"), allow_nan=False))
    assert summary["b"]["ratio"]["median"] == 2.0
    assert summary["b"]["rounds"] == 1
    assert summary["b"]["calls"] == 3
    assert summary["c"] == {"skipped": "why"}
    assert "ratio" not in found.summary()["a"]


def test_exponent_of_a_power() -> None:
    sizes = [1.0, 10.0, 100.0, 1000.0]
    assert scaling.exponent(sizes, [size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_percentiles() -> None:
    found = latency.percentiles([float(i) for i in range(101)])
    assert found == pytest.approx({"p50": 50.0, "p99": 99.0})


# What is written


def run_tiny(
    monkeypatch: pytest.MonkeyPatch, folder: Path, cases: list[results.Case]
) -> results.Result:
    module = runner.load_benchmark("cpu_levels")
    monkeypatch.setattr(module, "cases", lambda settings: cases)
    return runner.run("cpu_levels", SETTINGS, folder)


def tiny_case(work: str) -> results.Case:
    return {"work": work, "B": 4, "S": 2, "D": 3, "O": 2, "L": 3}


def test_end_to_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cases = [tiny_case("prediction"), tiny_case("training step")]
    result = run_tiny(monkeypatch, tmp_path, cases)
    stored = results.load(tmp_path / "cpu_levels.json")
    assert stored == json.loads(json.dumps(result))
    assert stored["complete"]
    assert {"machine", "versions", "git", "settings", "question", "seconds"} <= set(stored)
    assert stored["versions"]["torch"] == torch.__version__
    for cell, case in zip(stored["cells"], cases, strict=True):
        assert cell["case"] == case
        for entry in cell["alternatives"].values():
            assert 0 < entry["q25"] <= entry["median"] <= entry["q75"]
            assert set(entry["ratio"]) == {"median", "q25", "q75"}
        assert results.ratio(cell, workloads.LOCAL) == 1.0
    assert (tmp_path / "cpu_levels.png").stat().st_size > 10_000
    printed = capsys.readouterr()
    assert "Time of one prediction" in printed.out
    assert "[2/2] cpu_levels" in printed.err


def test_interruption_keeps_what_is_done(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    module = runner.load_benchmark("latency")
    cell = results.make_cell({"number": 0}, values={"n": 1})

    def measure(case: results.Case, settings: Settings) -> results.Cell:
        if case["number"]:
            raise KeyboardInterrupt
        return cell

    monkeypatch.setattr(module, "cases", lambda settings: [{"number": 0}, {"number": 1}])
    monkeypatch.setattr(module, "measure", measure)
    assert command.main(["latency", "--quick", "--out", str(tmp_path)]) == 130
    stored = results.load(tmp_path / "latency.json")
    assert not stored["complete"]
    assert stored["cells"] == [cell]
    asked = []
    monkeypatch.setattr(module, "measure", lambda case, settings: asked.append(case) or {})
    monkeypatch.setattr(module, "tables", lambda result: [])
    monkeypatch.setattr(runner.figures, "save", lambda *arguments: None)
    monkeypatch.setattr(runner, "skipped", lambda cells: [])
    assert command.main(["latency", "--quick", "--resume", "--out", str(tmp_path)]) == 0
    assert asked == [{"number": 1}]
    assert results.load(tmp_path / "latency.json")["cells"] == [cell, {}]


def test_documentation_gets_tables_and_figures(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run_tiny(monkeypatch, tmp_path, [tiny_case("prediction")])
    page = tmp_path / "docs" / "performance.md"
    page.parent.mkdir()
    marked = "<!-- benchmark: {} -->\nold {}\n<!-- end -->\n"
    page.write_text("# Title\n" + marked.format("cpu_levels", 1) + marked.format("depth", 2))
    assert report.write(["cpu_levels"], tmp_path, page) == 0
    text = page.read_text()
    assert "old 1" not in text
    assert "old 2" in text
    assert "| B | S | D | O | L |" in text
    assert (page.parent / "images/performance/cpu_levels.png").exists()
    report.write(["cpu_levels"], tmp_path, page)
    assert page.read_text() == text
    assert report.write(["depth"], tmp_path, page) == 1


@pytest.mark.parametrize("name", runner.NAMES)
def test_every_benchmark_asks_a_question(name: str) -> None:
    module: ModuleType = runner.load_benchmark(name)
    assert runner.question(module).endswith("?")
    for quick in (True, False):
        cases = module.cases(Settings(quick=quick, threads=2))
        assert cases
        assert json.dumps(cases)
    page = (ROOT / "docs" / "performance.md").read_text()
    assert f"<!-- benchmark: {name} -->" in page
    assert f"python -m benchmarks {name}" in page


@pytest.mark.parametrize(
    ("value", "met"),
    [(targets.AT_LEAST, [False, True, True]), (targets.AT_MOST, [True, True, False])],
)
def test_promises(value: str, met: list[bool]) -> None:
    target = targets.Target("", value, 2.0, targets.levels)
    assert [targets.is_met(target, ratio) for ratio in (1.0, 2.0, 3.0)] == met


def test_tables() -> None:
    table = Table("title", ["a", "n"], [["x", "1.0"], ["long", "20"]], "note")
    assert table.to_text().splitlines() == [
        "title",
        "a       n",
        "----  ---",
        "x     1.0",
        "long   20",
        "note",
    ]
    assert "| --- | ---: |" in table.to_markdown()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (1.5, "1.50 s"),
        (0.0123, "12.3 ms"),
        (4.56e-4, "456 µs"),
        (math.nan, "-"),
        (2e-10, "0.20 ns"),
    ],
)
def test_seconds(seconds: float, text: str) -> None:
    assert format_seconds(seconds) == text


def test_other_formats() -> None:
    assert format_ratio(12.345) == "12.3x"
    assert format_bytes(1_320_000) == "1.32 MB"
    assert format_bytes(5e9) == "5.00 GB"


@pytest.mark.parametrize("arguments", [["nonsense"], ["--threads", "0"], ["--device", "cuda"]])
def test_bad_arguments(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    if arguments[-1] == "cuda" and torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    with pytest.raises(SystemExit) as stop:
        command.main(arguments)
    assert stop.value.code == 2
    assert arguments[0].lstrip("-") in capsys.readouterr().err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--list"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(runner.NAMES)
