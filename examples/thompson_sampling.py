# %% [markdown]
# # Thompson sampling with function draws
# To find a maximum with few evaluations, draw one function from the posterior, evaluate where *it*
# is largest, learn, repeat. A path is a whole function: search its maximum on any grid you like.

# %%
import matplotlib.pyplot as plt
import torch
from gallery import budget, save
from torch import Tensor

from sikagp import SIKALayer
from sikagp.likelihoods import build_likelihood
from sikagp.objectives import VariationalELBO

POINTS = torch.linspace(0, 1, 501).unsqueeze(-1)
ROUNDS = budget(12, 2)


def objective(x: Tensor) -> Tensor:
    """A broad hill on the left, a narrow and higher one on the right."""
    broad = 0.6 * torch.sin(9 * x) * torch.exp(-((x - 0.5) ** 2) / 0.3)
    return broad + 0.8 * torch.exp(-((x - 0.75) ** 2) / 0.012)


def observe(x: Tensor) -> Tensor:
    return objective(x) + 0.05 * torch.randn_like(x)


# %% The posterior starts at the prior, so that weights without data stay uncertain.
def fresh_layer() -> SIKALayer:
    layer = SIKALayer(1, 1, level=5, lengthscale=0.3)
    layer.log_variance.requires_grad_(False)
    layer.log_lengthscale.requires_grad_(False)
    torch.nn.init.zeros_(layer.weight_mean)
    layer.weight_scale = layer.bias_scale = 1.0
    return layer


def learn(layer: SIKALayer, x: Tensor, y: Tensor, steps: int) -> None:
    """Go on fitting the layer to all that has been seen, with a known noise."""
    likelihood = build_likelihood("gaussian", 1)
    likelihood.noise = 0.01
    elbo = VariationalELBO(likelihood, layer.train(), num_data=len(x))
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = -elbo(layer(x), y)
        loss.backward()
        optimizer.step()
    layer.eval()


# %% Three random evaluations, then one per round at the maximum of a drawn function.
def run(seed: int) -> tuple[SIKALayer, Tensor, Tensor]:
    torch.manual_seed(seed)
    layer, x = fresh_layer(), torch.rand(3, 1)
    y = observe(x)
    for _ in range(ROUNDS):
        learn(layer, x, y, budget(50, 5))
        with torch.no_grad():
            draw = layer.paths(1)(POINTS)[0]
        choice = POINTS[draw.argmax()].unsqueeze(0)
        x, y = torch.cat([x, choice]), torch.cat([y, observe(choice)])
    learn(layer, x, y, budget(50, 5))
    return layer, x, y


runs = [run(seed) for seed in range(budget(5, 1))]

# %% One run: what is known in the end, with a few functions that are still possible.
layer, x, y = runs[0]
with torch.no_grad():
    q, draws = layer(POINTS), layer.paths(4)(POINTS)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
mean, reach = q.mean[:, 0], 1.96 * q.stddev[:, 0]
left.fill_between(POINTS[:, 0], mean - reach, mean + reach, alpha=0.2, label="95% of $f$")
left.plot(POINTS[:, 0], draws[..., 0].T, color="C0", linewidth=0.6)
left.plot(POINTS, objective(POINTS), "--", color="black", linewidth=1, label="truth")
left.plot(x[3:], y[3:], "o", color="C1", markersize=5, label="chosen")
left.plot(x[:3], y[:3], "ks", markersize=5, label="start")
left.legend(ncols=2, fontsize=8)
left.set(xlabel="x", ylabel="y", ylim=(-2.5, 3.5))

# %% All runs: how far is the best evaluation from the maximum, beside random search?
best = objective(POINTS).max()


def regret(x: Tensor) -> Tensor:
    return best - objective(x)[:, 0].cummax(0).values


thompson = torch.stack([regret(x) for _, x, _ in runs]).mean(0)
random = torch.stack([regret(torch.rand(len(x), 1)) for _ in range(500)]).mean(0)
count = range(1, len(x) + 1)
right.plot(count, thompson, "o-", label=f"Thompson sampling, mean of {len(runs)} runs")
right.plot(count, random, "--", label="random search, mean of 500")
right.set(xlabel="evaluations", ylabel="distance from the maximum", ylim=(0, None))
right.legend()
save(figure, "thompson_sampling")
print(f"after {len(x)} evaluations: {thompson[-1]:.3f} from the maximum; random {random[-1]:.3f}")
