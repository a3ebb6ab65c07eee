# %% [markdown]
# # Classification, and when not to answer
# Is the confidence of a classifier justified, and what does it gain by passing on hard rows?

# %%
import matplotlib.pyplot as plt
import numpy as np
import torch
from gallery import budget, save
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from sikagp import SIKAClassifier, metrics
from sikagp.plots import plot_reliability

# %% Digits 0 to 7 are known; nobody tells the model about 8 and 9.
X, y = load_digits(return_X_y=True)
known, unknown = y < 8, X[y >= 8]
split = {"test_size": 0.5, "random_state": 0}
X_train, rest, y_train, rest_labels = train_test_split(X[known], y[known], **split)
X_valid, X_test, y_valid, y_test = train_test_split(rest, rest_labels, **split)
model = SIKAClassifier(random_state=0, max_epochs=budget(40, 4)).fit(X_train, y_train)


# %% Entropy of the averaged probabilities says how doubtful the model is about a row.
def probabilities(X):
    return torch.from_numpy(model.predict_proba(X))


probs, labels = probabilities(X_test), torch.from_numpy(y_test)
entropy, entropy_unknown = map(metrics.predictive_entropy, (probs, probabilities(unknown)))
right = (probs.argmax(-1) == labels).numpy()

# %% Reliability on known rows, and accuracy among the rows with the lowest entropy.
figure, (left, middle) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
plot_reliability(probs, labels, num_bins=10, ax=left)
shares = np.arange(1, len(right) + 1) / len(right)
middle.plot(shares, right[entropy.argsort()].cumsum() / np.arange(1, len(right) + 1))
middle.set(xlabel="share of rows that are answered", ylabel="accuracy among them")
middle.grid(alpha=0.3)
save(figure, "classification")

# %% A threshold that 95% of the validation rows stay below.
threshold = metrics.predictive_entropy(probabilities(X_valid)).quantile(0.95)
stands = (entropy <= threshold).numpy()
print(f"accuracy {right.mean():.1%}, ECE {float(metrics.ece(probs, labels)):.3f}")
print(f"answers {stands.mean():.0%} of known digits, {right[stands].mean():.1%} of them right")
print(f"answers {(entropy_unknown <= threshold).float().mean():.0%} of unknown digits")
scores, outside = torch.cat([entropy, entropy_unknown]), torch.arange(len(y_test) + len(unknown))
print(f"AUROC of entropy {float(metrics.auroc(scores, outside >= len(y_test))):.3f}")
