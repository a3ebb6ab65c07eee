"""The stock Trainer trains a classifier: the paper's recipe, its schedules, and LoRA."""

import pytest
import torch
from transformers import AutoModel, TrainerCallback

from sikagp.integrations.transformers import (
    FreezingSchedule,
    KLWarmup,
    SIKAForSequenceClassification,
    add_lora,
    build_trainer,
    load_lora,
    save_lora,
    training_arguments,
)
from sikagp.integrations.transformers.callbacks import find_classifier
from tests.text_models import (
    ENCODERS,
    FirstToken,
    changed,
    snapshot,
    tiny_classifier,
    tokens,
)

# torch's own pinning of memory, which the Trainer asks for, has nothing to pin here.
pytestmark = pytest.mark.filterwarnings("ignore:.*pin_memory.*:UserWarning")


def arguments(folder, **options):
    defaults = {
        "num_train_epochs": 3,
        "per_device_train_batch_size": 8,
        "use_cpu": True,
        "disable_tqdm": True,
        "logging_strategy": "no",
        "seed": 0,
    }
    return training_arguments(folder, **defaults | options)


def test_the_defaults_are_the_papers(tmp_path):
    args = training_arguments(tmp_path, use_cpu=True)
    assert (args.num_train_epochs, args.per_device_train_batch_size) == (20, 32)
    assert (args.learning_rate, args.max_grad_norm) == (1e-3, 1.0)
    assert args.lr_scheduler_type == "linear"
    assert args.get_warmup_steps(1000) == 60
    trainer = build_trainer(tiny_classifier(), args)
    kinds = {type(callback): callback for callback in trainer.callback_handler.callbacks}
    assert kinds[KLWarmup].fraction == 0.15
    schedule = kinds[FreezingSchedule]
    assert (schedule.frozen_epochs, schedule.trainable_layers) == (2, 2)


def test_groups_of_the_optimizer(tmp_path):
    model = tiny_classifier()
    args = arguments(tmp_path, weight_decay=0.1)
    groups = build_trainer(model, args, encoder_rate=2e-5).optimizer.param_groups
    found = {
        id(parameter): (group["lr"], group["weight_decay"])
        for group in groups
        for parameter in group["params"]
    }
    assert len(found) == len(list(model.parameters()))
    assert found[id(model.head.layer.weight_mean)] == (1e-3, 0.0)
    assert found[id(model.head.embedding.weight)] == (1e-3, 0.1)
    assert found[id(model.head.embedding.bias)] == (1e-3, 0.0)
    assert found[id(model.encoder.embeddings.word_embeddings.weight)] == (2e-5, 0.1)
    assert found[id(model.encoder.embeddings.LayerNorm.weight)] == (2e-5, 0.0)


class Watch(TrainerCallback):
    """Records the weight of the KL divergence at every step and what changed in every epoch."""

    def __init__(self) -> None:
        self.factors, self.changes = [], []

    def on_epoch_begin(self, args, state, control, model, **kwargs):
        self.before = snapshot(model)

    def on_step_end(self, args, state, control, model, **kwargs):
        self.factors.append(find_classifier(model).kl_warmup)

    def on_epoch_end(self, args, state, control, model, **kwargs):
        self.changes.append(changed(model, self.before))


def test_schedules(tmp_path):
    model, watch = tiny_classifier("distilbert"), Watch()
    schedule = FreezingSchedule(frozen_epochs=1, trainable_layers=1)
    trainer = build_trainer(
        model,
        arguments(tmp_path, num_train_epochs=2),
        freezing=schedule,
        callbacks=[KLWarmup(0.5), watch],
        train_dataset=FirstToken(40),
    )
    trainer.train()
    assert model.config.num_data == 40
    assert watch.factors == pytest.approx([*(i / 6 for i in range(1, 6)), *[1.0] * 5])
    head = {name for name in snapshot(model) if name.startswith("head.")}
    last = {name for name in snapshot(model) if "transformer.layer.2." in name}
    assert watch.changes[0] == head
    # The bias of the keys has no gradient: softmax does not see a shift.
    assert head < watch.changes[1] <= head | last
    assert last - watch.changes[1] <= {name for name in last if "k_lin.bias" in name}


def test_it_learns(tmp_path):
    model = tiny_classifier(kl_weight=0.1, num_samples=(4, 20))
    trainer = build_trainer(
        model,
        arguments(
            tmp_path,
            num_train_epochs=15,
            learning_rate=2e-2,
            per_device_train_batch_size=16,
            gradient_accumulation_steps=2,
        ),
        encoder_rate=1e-2,
        freezing=FreezingSchedule(0, None),
        train_dataset=FirstToken(128),
        eval_dataset=FirstToken(64),
    )
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    prediction = trainer.predict(FirstToken(64))
    assert trainer.evaluate()["eval_loss"] < 0.5 * before
    assert (prediction.predictions.argmax(-1) == prediction.label_ids).mean() > 0.8


def test_lora_trains_adapters_and_head_only(tmp_path):
    encoder = AutoModel.from_config(ENCODERS["bert"])
    encoder.save_pretrained(tmp_path / "encoder")
    model = SIKAForSequenceClassification.from_encoder(
        str(tmp_path / "encoder"), num_labels=3, projection=8, head_options={"level": 3}
    )
    model = add_lora(model, r=2)
    before = snapshot(model)
    args = arguments(tmp_path, learning_rate=1e-2)
    build_trainer(model, args, encoder_rate=1e-2, train_dataset=FirstToken(32)).train()
    after = changed(model, before)
    adapters = {name for name in before if "lora_" in name}
    head = {name for name in before if "head.modules_to_save" in name}
    assert adapters
    assert head
    assert after == adapters | head

    save_lora(model, tmp_path / "adapters")
    inputs = tokens(6)
    model.eval()
    with torch.no_grad():
        expected = model(**inputs).logits
        assert load_lora(tmp_path / "adapters")(**inputs).logits.equal(expected)
        other = load_lora(tmp_path / "adapters", encoder=encoder)
        assert other(**inputs).logits.equal(expected)


def test_lora_needs_to_know_its_encoder(tmp_path):
    save_lora(add_lora(tiny_classifier(), r=2), tmp_path)
    with pytest.raises(ValueError, match="encoder had no name"):
        load_lora(tmp_path)


def test_callbacks_refuse_other_models():
    with pytest.raises(TypeError, match="SIKAForSequenceClassification"):
        find_classifier(torch.nn.Linear(2, 2))
    with pytest.raises(ValueError, match="fraction"):
        KLWarmup(1.5)
