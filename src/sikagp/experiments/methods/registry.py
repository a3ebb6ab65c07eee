"""Methods by name."""

from collections.abc import Mapping
from typing import Any

from sikagp.experiments.methods.base import TASKS, Method, Problem, Task
from sikagp.experiments.methods.classical import boosting, nearest_neighbours
from sikagp.experiments.methods.ensembles import Ensemble, OnColumns
from sikagp.experiments.methods.exact import ExactGP
from sikagp.experiments.methods.heads import HEADS
from sikagp.experiments.methods.trained import Trained
from sikagp.validation import check_choice, check_count

# Where a method wants another start than all: the mixing weights of a deep kernel are many and
# learn as the rest does, and a network without variance needs no draws.
_DEFAULTS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "svdkl": ({}, {"likelihood_rate": 1.0}),
    "network": ({"train_samples": 1, "test_samples": 1}, {}),
    "mc-dropout": ({"train_samples": 1, "test_samples": 1}, {}),
}
_OTHERS = ("ensemble", "knn", "boosting", "exact-gp")
METHODS = (*HEADS, *_OTHERS)


def build_method(
    name: str,
    *,
    in_features: int,
    out_features: int,
    task: Task,
    options: Mapping[str, Any],
    training: Mapping[str, Any],
    device: str = "cpu",
) -> Method:
    """Make an untrained method.

    Args:
        name: one of :data:`METHODS`.
        in_features: number of columns of a table, or of features that a backbone returns.
        out_features: number of targets or classes.
        task: ``"regression"`` or ``"classification"``.
        options: options of the model; see :mod:`sikagp.experiments.methods.heads` and, for all
            that train by gradient, :class:`sikagp.experiments.methods.settings.Setting`. An
            ensemble has ``members`` (4) of a ``member`` (``"network"``), which take further
            options in turn from the list ``each``, and may be given some ``columns`` of a table.
        training: options of :class:`sikagp.training.TrainingConfig`, without the seed.
        device: where methods that train by gradient run; the others stay on the CPU.
    """
    check_choice("name", name, METHODS)
    check_choice("task", task, TASKS)
    check_count("in_features", in_features)
    check_count("out_features", out_features)
    return _build(name, Problem(in_features, out_features, task, options, training), device)


def _build(name: str, problem: Problem, device: str) -> Method:
    if name == "ensemble":
        return _build_ensemble(problem, device)
    if name == "knn":
        return nearest_neighbours(problem, **problem.options)
    if name == "boosting":
        return boosting(problem, **problem.options)
    if name == "exact-gp":
        return ExactGP(problem, **problem.options)
    if name == "svdkl" and not problem.classifies:
        raise ValueError("svdkl mixes processes into classes; for regression use kiss-gp")
    options, training = _DEFAULTS.get(name, ({}, {}))
    return Trained(
        name,
        problem.replace(
            options={**options, "device": device, **problem.options},
            training={**training, **problem.training},
        ),
    )


def _build_ensemble(problem: Problem, device: str) -> Ensemble:
    options = dict(problem.options)
    name, members = options.pop("member", "network"), options.pop("members", 4)
    each = options.pop("each", [{}])
    chosen = (each[i % len(each)] for i in range(check_count("members", members)))
    return Ensemble([_build_member(name, problem, {**options, **own}, device) for own in chosen])


def _build_member(name: str, problem: Problem, options: dict[str, Any], device: str) -> Method:
    columns = options.pop("columns", None)
    if columns is None:
        return _build(name, problem.replace(options=options), device)
    first, stop = columns
    if not 0 <= first < stop <= problem.in_features:
        raise ValueError(f"columns must lie in [0, {problem.in_features}], got {columns}")
    part = problem.replace(options=options, in_features=stop - first)
    return OnColumns(_build(name, part, device), columns)
