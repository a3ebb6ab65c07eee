"""Small sets of texts: each class has words of its own, and some texts have none of them."""

import random

import torch

from sikagp.integrations.transformers.texts import Texts

WORDS = {
    "weather": ["rain", "sun", "cloud", "storm", "wind"],
    "money": ["bank", "cash", "loan", "coin", "price"],
    "music": ["song", "band", "drum", "tune", "guitar"],
}
NAMES = sorted(WORDS)
FILLERS = ["the", "please", "tell", "about", "some", "now", "my"]
STRANGE = ["zebra", "lava", "moon", "atom"]


def sentence(words: list[str], chance: random.Random) -> str:
    chosen = chance.choices(words, k=2) + chance.choices(FILLERS, k=chance.randint(1, 3))
    return " ".join(chance.sample(chosen, len(chosen)))


def labelled_texts(rows_per_class: int, unknown: int = 0, seed: int = 0) -> Texts:
    """Return texts of three classes and, with the label -1, texts without one."""
    chance = random.Random(seed)
    texts = [sentence(WORDS[name], chance) for name in NAMES for _ in range(rows_per_class)]
    texts += [sentence(STRANGE, chance) for _ in range(unknown)]
    labels = torch.arange(len(NAMES)).repeat_interleave(rows_per_class)
    return Texts(texts, torch.cat([labels, torch.full((unknown,), -1)]))
