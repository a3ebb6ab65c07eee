"""Checks of what the metrics are given: each error says what was expected and what came."""

import torch
from torch import Tensor


def check_floating(**tensors: Tensor) -> None:
    """Refuse anything but floating-point tensors."""
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise TypeError(f"{name} must be a torch.Tensor, got {type(tensor).__name__}")
        if not tensor.is_floating_point():
            raise TypeError(f"{name} must hold floating-point numbers, got {tensor.dtype}")


def check_same_shape(**tensors: Tensor) -> None:
    """Refuse shapes that differ: broadcasting (N, 1) against (N,) would compare all pairs."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    if len(set(shapes.values())) > 1:
        listed = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"expected the same shape for all, got {listed}")


def check_gaussians(mean: Tensor, variance: Tensor, target: Tensor) -> None:
    """Refuse all but one Gaussian per target."""
    check_floating(mean=mean, variance=variance, target=target)
    check_same_shape(mean=mean, variance=variance, target=target)
    _check_variance(variance)


def check_mixtures(means: Tensor, variances: Tensor, target: Tensor) -> None:
    """Refuse all but S components for every target, along the first dimension."""
    check_floating(means=means, variances=variances, target=target)
    check_same_shape(means=means, variances=variances)
    if means.ndim == 0 or means.shape[1:] != target.shape or len(means) == 0:
        raise ValueError(
            f"expected components of shape (S, *{tuple(target.shape)}) with S >= 1 for a target "
            f"of shape {tuple(target.shape)}, got {tuple(means.shape)}"
        )
    _check_variance(variances)


def check_probabilities(probs: Tensor) -> None:
    """Refuse all but class probabilities of shape (*batch, classes); NaN passes through."""
    check_floating(probs=probs)
    if probs.ndim == 0 or probs.shape[-1] == 0:
        raise ValueError(f"probs must have shape (*batch, classes), got {tuple(probs.shape)}")
    tolerance = max(1e-3, 4 * torch.finfo(probs.dtype).eps)
    total = probs.sum(-1)
    if bool((probs < 0).any()) or bool(((total - 1).abs() > tolerance).any()):
        raise ValueError(
            "probs must be non-negative and sum to 1 over the last dimension, got values in "
            f"[{probs.min():.4g}, {probs.max():.4g}] and sums in [{total.min():.4g}, "
            f"{total.max():.4g}]; turn logits into probabilities with logits.softmax(-1)"
        )


def check_labels(probs: Tensor, target: Tensor) -> None:
    """Refuse all but one class index per row of probabilities."""
    check_probabilities(probs)
    if target.is_floating_point() or target.is_complex() or target.dtype == torch.bool:
        raise TypeError(f"target must hold integer class labels, got {target.dtype}")
    if target.shape != probs.shape[:-1]:
        raise ValueError(
            f"expected one label per row, shape {tuple(probs.shape[:-1])}, "
            f"got {tuple(target.shape)}"
        )
    bad = (target < 0) | (target >= probs.shape[-1])
    if bool(bad.any()):
        raise ValueError(
            f"labels must lie in 0..{probs.shape[-1] - 1} for {probs.shape[-1]} classes, "
            f"got {int(target[bad][0])}"
        )


def check_scores(score: Tensor, positive: Tensor) -> None:
    """Refuse all but one score and one mark, 0 or 1, per row."""
    check_floating(score=score)
    check_same_shape(score=score, positive=positive)
    if positive.is_floating_point() or not bool(((positive == 0) | (positive == 1)).all()):
        raise ValueError(f"positive must be boolean or hold integers 0 and 1, got {positive.dtype}")


def _check_variance(variance: Tensor) -> None:
    """NaN passes, so that a diverged model gets NaN for its score instead of an exception."""
    bad = variance <= 0
    if bool(bad.any()):
        raise ValueError(f"variances must be positive, got {float(variance[bad][0]):g}")
