"""Timing alternatives side by side, so that a busy machine disturbs all of them alike.

Alternatives take turns, round after round, each round starting with another one. A sample is the
mean of as many calls as fill a millisecond, and follows a call that is not timed: an alternative
finds the caches and the allocator as it left them itself, as in a loop of its own, and does not pay
for giving back memory that another one freed. Only calls that take long start at once.

Speeds are compared within rounds and the median over rounds is reported, so a disturbance that
lasts longer than a round cancels out, and one that does not is an outlier that the median ignores.
"""

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

clock = time.perf_counter

Call = Callable[[], object]
SAMPLE_SECONDS = 1e-3
MAX_CALLS = 1000
MAX_ROUNDS = 400
SECONDS_PER_DRAW = 5e-9  # of a standard normal
LONG_CALL = 0.3  # seconds


@dataclass(frozen=True)
class Settings:
    """What a run may use, and how long it may take."""

    quick: bool = False
    device: str = "cpu"
    threads: int = field(default_factory=torch.get_num_threads)
    seed: int = 0
    longest_call: float | None = None

    @property
    def seconds(self) -> float:
        """Time to spend on one comparison, warm-up aside."""
        return 0.1 if self.quick else 2.0

    def min_rounds(self, seconds: float) -> int:
        """Rounds that an alternative gets even if it takes more than its share of the time."""
        return 3 if self.quick or seconds > 0.1 else 7

    @property
    def slowest(self) -> float:
        """Seconds per call beyond which an alternative is left out."""
        return self.longest_call or (0.5 if self.quick else 2.0)

    @property
    def max_bytes(self) -> int:
        """Memory beyond which an alternative is left out."""
        return 2**29 if self.quick else 3 * 2**30

    def synchronise(self) -> None:
        """Wait until the device has done what it was asked to do."""
        if self.device.startswith("cuda"):
            torch.cuda.synchronize(self.device)


class Alternative(NamedTuple):
    """One way to do the work, and roughly what it takes at least: memory and normal draws."""

    run: Call
    num_bytes: int = 0
    num_draws: int = 0

    def excess(self, settings: Settings) -> str:
        """Why the alternative is not even tried; empty if it is."""
        if self.num_bytes > settings.max_bytes:
            return f"needs about {self.num_bytes / 2**30:.1f} GiB"
        seconds = self.num_draws * SECONDS_PER_DRAW
        return f"would take at least {seconds:.1f} s" if seconds > settings.slowest else ""


class _Contestant(NamedTuple):
    """An alternative that takes part, and whether a call of its own comes before each sample."""

    run: Call
    min_rounds: int
    leads_in: bool


class Spread(NamedTuple):
    """Median and quartiles of a sample."""

    median: float
    q25: float
    q75: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """Summarise at least one value."""
        if len(values) == 1:
            return cls(values[0], values[0], values[0])
        q25, median, q75 = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, q25, q75)


class Comparison:
    """Seconds per call of every alternative in every round; NaN where it sat out.

    Attributes:
        samples: for each alternative one number per round.
        calls: how many calls a sample is the mean of.
        skipped: for each alternative that was not timed, why.
    """

    def __init__(
        self,
        samples: dict[str, list[float]],
        calls: dict[str, int],
        skipped: dict[str, str] | None = None,
    ) -> None:
        self.samples, self.calls, self.skipped = samples, calls, skipped or {}

    def seconds(self, name: str) -> Spread:
        """Seconds per call."""
        return Spread.of([value for value in self.samples[name] if not math.isnan(value)])

    def ratio(self, name: str, baseline: str) -> Spread:
        """Seconds of ``name`` as a multiple of the baseline's in the same round."""
        return self.combine(lambda a, b: a / b, name, baseline)

    def combine(self, function: Callable[..., float], *names: str) -> Spread:
        """Spread of a function of several alternatives' seconds, taken round by round."""
        rounds = zip(*(self.samples[name] for name in names), strict=True)
        values = [function(*values) for values in rounds if not any(map(math.isnan, values))]
        return Spread.of(values)

    def summary(self, baseline: str | None = None) -> dict[str, dict[str, Any]]:
        """Everything worth keeping, as JSON values."""
        summary: dict[str, dict[str, Any]] = {}
        for name, values in self.samples.items():
            rounds = sum(not math.isnan(value) for value in values)
            summary[name] = {**self.seconds(name)._asdict(), "rounds": rounds}
            summary[name]["calls"] = self.calls[name]
            if baseline in self.samples:
                summary[name]["ratio"] = self.ratio(name, baseline)._asdict()
        return summary | {name: {"skipped": reason} for name, reason in self.skipped.items()}


def compare(
    alternatives: Mapping[str, Alternative | Call],
    settings: Settings,
    *,
    limited: bool = True,
    seconds: float | None = None,
) -> Comparison:
    """Time alternatives in turn until each has had its share of the time.

    Those that are too slow or too large are left out, unless ``limited`` is False. ``seconds`` is
    the time to spend on all of them, if not that of the settings.
    """
    comparison = Comparison({}, {})
    ready: dict[str, _Contestant] = {}
    with _no_garbage_collection():
        for name, given in alternatives.items():
            option = given if isinstance(given, Alternative) else Alternative(given)
            if limited and option.excess(settings):
                comparison.skipped[name] = option.excess(settings)
                continue
            try:
                each = _warm_up(option.run, settings)
            except RuntimeError as error:
                if not limited or "memory" not in str(error):
                    raise
                comparison.skipped[name] = "runs out of memory"
                continue
            if limited and each > settings.slowest:
                comparison.skipped[name] = f"one call takes {each:.1f} s"
                continue
            ready[name] = _Contestant(option.run, settings.min_rounds(each), each < LONG_CALL)
            comparison.samples[name] = []
            comparison.calls[name] = calls_per_sample(each)
        _take_turns(ready, comparison, settings, seconds or settings.seconds)
    return comparison


def _warm_up(run: Call, settings: Settings) -> float:
    """Call twice, as the first call may compile; returns the seconds of the second."""
    timed(run, settings)
    return timed(run, settings)


def calls_per_sample(seconds: float) -> int:
    """How many calls fill a sample."""
    return max(1, min(MAX_CALLS, math.ceil(SAMPLE_SECONDS / max(seconds, 1e-9))))


def _take_turns(
    ready: dict[str, _Contestant], comparison: Comparison, settings: Settings, seconds: float
) -> None:
    spent = dict.fromkeys(ready, 0.0)
    share = seconds / max(1, len(ready))
    names = list(ready)
    for number in range(MAX_ROUNDS):
        active = {name for name in names if spent[name] < share or number < ready[name].min_rounds}
        if not active:
            return
        first = number % len(names)
        for name in names[first:] + names[:first]:
            sample = math.nan
            if name in active:
                run, calls = ready[name].run, comparison.calls[name]
                if ready[name].leads_in:
                    run()
                sample = timed(run, settings, calls)
                spent[name] += sample * calls
            comparison.samples[name].append(sample)


def timed(run: Call, settings: Settings, calls: int = 1) -> float:
    """Seconds per call."""
    settings.synchronise()
    start = clock()
    for _ in range(calls):
        run()
    settings.synchronise()
    return (clock() - start) / calls


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    was_enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
