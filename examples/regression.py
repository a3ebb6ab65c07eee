# %% [markdown]
# # Regression with bands
# A function of one input, seen with noise on two stretches. Where are the data, where not, and does
# the band know?

# %%
import matplotlib.pyplot as plt
import numpy as np
from gallery import budget, save

from sikagp import SIKARegressor
from sikagp.plots import plot_fit

# %% Data with a gap, and nothing beyond 3.
random = np.random.RandomState(1)
x = np.concatenate([random.uniform(-3, 0, 90), random.uniform(1, 3, 60)])
truth = lambda x: np.sin(2 * x) + 0.3 * x  # noqa: E731
y = truth(x) + 0.2 * random.randn(len(x))

# %% A smooth kernel suits a function of one input. A fine grid lets the band open within the gap.
model = SIKARegressor(kernel="matern32", level=5, max_epochs=budget(300, 20), random_state=0)
model.fit(x[:, None], y)

# %% Mean and 95% band of y, noise included.
points = np.linspace(-5, 5, 401)
mean, std = model.predict(points[:, None], return_std=True)
figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
plot_fit(points, mean, std**2, data=(x, y), truth=truth(points), ax=ax)
save(figure, "regression")

# %% How often does the band hold a new observation, where there are data and beyond?
new = random.uniform(-5, 5, 4000)
low, high = model.predict_interval(new[:, None], level=0.95)
noisy = truth(new) + 0.2 * random.randn(len(new))
inside = (low <= noisy) & (noisy <= high)
regions = {
    "among the data": (np.abs(new) < 3) & ~((new > 0) & (new < 1)),
    "in the gap": (new > 0) & (new < 1),
    "beyond": np.abs(new) > 3,
}
for name, rows in regions.items():
    print(f"{name:15} {inside[rows].mean():.1%} in the 95% band")
