"""The command ``sikagp fit-text``: from a CSV of texts and labels to a model that may abstain."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sikagp.cli.refusals import check_folder, refusals

if TYPE_CHECKING:
    from sikagp.integrations.transformers.texts import Texts

NO_TRANSFORMERS = "fit-text needs transformers: pip install 'sikagp[text]'"
SHARES = (0.8, 0.1)


def fit_text(
    path: Annotated[Path, typer.Argument(help="CSV file with a header.", metavar="CSV")],
    text_column: Annotated[str, typer.Option(help="Column of the texts.")] = "text",
    label_column: Annotated[str, typer.Option(help="Column of the labels.")] = "label",
    unknown_label: Annotated[
        str | None, typer.Option(help="Label of texts that belong to no class; never trained on.")
    ] = None,
    encoder: Annotated[
        str, typer.Option(help="Folder, name in the hub, or 'tiny' for a quick look.")
    ] = "all-MiniLM-L6-v2",
    out: Annotated[Path, typer.Option(help="Folder of model, metrics and report.")] = Path(
        "build/text"
    ),
    coverage: Annotated[
        float, typer.Option(help="Share of validation texts that get an answer.")
    ] = 0.95,
    seed: Annotated[int, typer.Option(min=0, help="Of the split and of training.")] = 0,
) -> None:
    """Train a text classifier that says "I don't know" where it is in doubt."""
    try:
        import transformers  # noqa: F401
    except ImportError:
        raise typer.BadParameter(NO_TRANSFORMERS) from None
    from sikagp.integrations.transformers.texts import read_texts

    with refusals():
        texts, names = read_texts(path, text_column, label_column, unknown_label)
        check_folder(out)
        metrics = fit_and_save(texts, names, out, encoder=encoder, coverage=coverage, seed=seed)
    typer.echo(as_report(path.name, encoder, names, metrics))
    typer.echo(f"model, metrics.json and report.md are in {out}")


def fit_and_save(
    texts: "Texts", names: Sequence[str], out: Path, *, encoder: str, coverage: float, seed: int
) -> dict[str, float]:
    """Train on most of the texts, score the rest, and write everything to a folder."""
    import dataclasses

    import torch

    from sikagp.integrations.transformers.abstention import TRAINING, fit_abstaining, score
    from sikagp.integrations.transformers.encoders import load_encoder

    train, validation, test = texts.split(SHARES, seed=seed)
    torch.manual_seed(seed)
    classifier = fit_abstaining(
        train,
        validation,
        names,
        load_encoder(encoder, train.texts),
        coverage=coverage,
        training=dataclasses.replace(TRAINING, seed=seed),
    )
    metrics = score(classifier, test) | {
        "threshold": float(classifier.model.config.doubt_threshold),
        "temperature": classifier.model.config.calibration_temperature,
        "training_texts": len(train.known().texts),
        "test_texts": len(test.texts),
    }
    classifier.save(out)
    (out / "metrics.json").write_text(json.dumps(metrics, indent=1) + "\n", encoding="utf-8")
    (out / "report.md").write_text(as_report("", encoder, names, metrics), encoding="utf-8")
    return metrics


def as_report(source: str, encoder: str, names: Sequence[str], metrics: Mapping[str, Any]) -> str:
    """Say in a few lines what was trained and how good it is."""
    lines = [
        f"# Text classifier{f' from {source}' if source else ''}",
        "",
        f"{len(names)} labels, {metrics['training_texts']} training texts, encoder {encoder}.",
        f'It says "I don\'t know" where the entropy exceeds {metrics["threshold"]:.3f} nats.',
        "",
        f"| on {metrics['test_texts']} test texts | |",
        "|---|---|",
        f"| accuracy | {metrics['accuracy']:.1%} |",
        f"| calibration error (ECE) | {metrics['ece']:.1%} |",
        f"| NLL | {metrics['nll']:.3f} |",
        f"| answered | {metrics['coverage']:.1%} |",
        f"| accuracy of the answers | {metrics['accuracy_of_answers']:.1%} |",
    ]
    if "unknown_declined" in metrics:
        lines += [
            f"| declined, of texts without a class | {metrics['unknown_declined']:.1%} |",
            f"| AUROC for finding them | {metrics['unknown_auroc']:.3f} |",
        ]
    return "\n".join(lines) + "\n"
