# %% [markdown]
# # A SIKA head on your own network
# Your network keeps its body; the last linear layer becomes a Gaussian process. What changes in
# accuracy, in calibration, and in the doubt about images of a kind it has never seen?

# %%
import matplotlib.pyplot as plt
import torch
from gallery import budget, save
from sklearn.datasets import load_digits
from torch import nn

from sikagp import DeepKernel, TrainingConfig, fit, metrics
from sikagp.calibration import fit_temperature, temper
from sikagp.likelihoods import build_likelihood
from sikagp.plots import plot_entropy, plot_reliability
from sikagp.predictions import predictive

# %% Digits 0 to 7 are known; 8 and 9 are out of distribution, and only looked at in the end.
images, labels = map(torch.tensor, load_digits(return_X_y=True))
images = images.float().view(-1, 1, 8, 8) / 16
known = torch.nonzero(labels < 8).squeeze(-1)
known = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(0))]
train, valid, test = known[:800], known[800:1100], known[1100:]
foreign = images[labels >= 8]


# %% Your own network, up to its features.
def body() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten()),
        nn.Linear(32 * 16, 32),  # no ReLU: a grid wants features on both sides of zero
    )


# %% The five lines: a head, a likelihood, a training run.
torch.manual_seed(0)
model = DeepKernel(body(), num_features=32, out_features=8, level=4)
likelihood = build_likelihood("softmax", 8)
config = TrainingConfig(epochs=budget(30, 2), batch_size=64, learning_rate=5e-3, kl_weight=0.1)
fit(model, likelihood, (images[train], labels[train]), config)


@torch.no_grad()
def head(x: torch.Tensor) -> torch.Tensor:
    return predictive(likelihood, model(x)).probs


# %% For comparison: the same body under a linear layer.
torch.manual_seed(0)
linear = nn.Sequential(body(), nn.ReLU(), nn.Linear(32, 8))
optimizer = torch.optim.Adam(linear.parameters(), lr=5e-3)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 5e-3, 13 * config.epochs)
for _ in range(config.epochs):
    for batch in train[torch.randperm(len(train))].split(64):
        loss = nn.functional.cross_entropy(linear(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def plain(x: torch.Tensor) -> torch.Tensor:
    return linear(x).softmax(-1)


# %% Calibrate both on validation images, then score the test images and the foreign ones.
figure, axes = plt.subplots(2, 2, figsize=(9, 8), layout="constrained")
for row, (name, predict) in zip(axes, {"linear": plain, "SIKA": head}.items(), strict=True):
    temperature = fit_temperature(predict(images[valid]), labels[valid])
    probs, others = (temper(predict(x), temperature).exp() for x in (images[test], foreign))
    inside, outside = map(metrics.predictive_entropy, (probs, others))
    marks = torch.cat([torch.zeros(len(inside)), torch.ones(len(outside))]).bool()
    print(
        f"{name:6}  accuracy {float(metrics.accuracy(probs, labels[test])):.1%}"
        f"  NLL {float(metrics.nll(probs, labels[test])):.3f}"
        f"  ECE {float(metrics.ece(probs, labels[test])):.1%}"
        f"  AUROC of entropy {float(metrics.auroc(torch.cat([inside, outside]), marks)):.3f}"
    )
    plot_reliability(probs, labels[test], num_bins=10, ax=row[0])
    plot_entropy(inside, outside, ax=row[1])
    row[1].set_title(f"{name} head")
save(figure, "cnn_head")
