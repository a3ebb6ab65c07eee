# %% [markdown]
# # A deep Gaussian process
# One layer adds up functions of single features, so it cannot learn a product. Two layers can.

# %%
import matplotlib.pyplot as plt
import torch
from gallery import budget, save

from sikagp import DeepGP, TrainingConfig, fit
from sikagp.likelihoods import build_likelihood

# %% A product of two features, seen with noise on two thirds of the square.
torch.manual_seed(0)
x = 2 * torch.rand(900, 2) - 1
x = x[~((x > 0).all(-1))]
truth = lambda x: torch.sin(4 * x[:, 0] * x[:, 1])  # noqa: E731
y = truth(x) + 0.1 * torch.randn(len(x))


# %% Without hidden units the model is a single layer.
def train(hidden: tuple[int, ...]) -> DeepGP:
    torch.manual_seed(0)
    model = DeepGP((2, *hidden, 1), level=4, domain=(-1.0, 1.0), num_samples=(4, 50))
    config = TrainingConfig(
        epochs=budget(60, 2), batch_size=128, learning_rate=0.02, schedule="one_cycle"
    )
    options = {"enable_progress_bar": False}
    fit(model, build_likelihood("gaussian", 1), (x, y), config, trainer_options=options)
    return model.eval()


shallow, deep = train(()), train((8,))

# %% Mean of both on the whole square; the corner at the upper right holds no data.
side = torch.linspace(-1, 1, 60)
grid = torch.cartesian_prod(side, side)
with torch.no_grad():
    panels = {
        "truth": truth(grid),
        "one layer": shallow(grid).mean[:, 0],
        "two layers": deep(grid).mean[:, 0],
        "two layers: deviation": deep(grid).stddev[:, 0],
    }
figure, axes = plt.subplots(1, 4, figsize=(11, 3), layout="constrained", sharey=True)
for ax, (title, values) in zip(axes, panels.items(), strict=True):
    limits = (
        {"cmap": "viridis"} if "deviation" in title else {"vmin": -1, "vmax": 1, "cmap": "RdBu"}
    )
    image = ax.pcolormesh(side.numpy(), side.numpy(), values.view(60, 60).T.numpy(), **limits)
    figure.colorbar(image, ax=ax, shrink=0.7)
    ax.set(title=title, aspect="equal")
    ax.plot([0, 0, 1], [1, 0, 0], color="black", linewidth=0.8)
save(figure, "deep_gp")

# %% Error where there are data, and doubt where there are none.
seen = ~((grid > 0).all(-1))
for name in ("one layer", "two layers"):
    rmse = (panels[name] - panels["truth"])[seen].square().mean().sqrt()
    print(f"{name:11} RMSE {rmse:.3f} where there are data")
deviation = panels["two layers: deviation"]
print(
    f"deviation of f: {deviation[seen].mean():.3f} there, {deviation[~seen].mean():.3f} elsewhere"
)
