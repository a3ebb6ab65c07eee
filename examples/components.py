# %% [markdown]
# # What each feature does
# An additive model is a sum of one function per feature, each with its own band.

# %%
from gallery import budget, save
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from sikagp import SIKARegressor

# %% Disease progression of 442 patients after a year; features in their own units.
X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X, X_test, y, y_test = train_test_split(X, y, random_state=0)

# %% No hidden layer: the model is additive.
model = SIKARegressor(hidden=(), max_epochs=budget(300, 20), random_state=0).fit(X, y)
low, high = model.predict_interval(X_test, level=0.9)
print(f"R2 on unseen rows {model.score(X_test, y_test):.2f}")
print(f"{((low <= y_test) & (y_test <= high)).mean():.0%} of them in the 90% interval")

# %% Effects average to zero over the rows; importances are shares of their variance.
axes = model.plot_components()
figure = axes[0].figure
figure.set_size_inches(9, 7)
save(figure, "components")
ranking = sorted(zip(model.feature_importances_, X.columns, strict=True), reverse=True)
for share, name in ranking[:4]:
    print(f"{name:5} {share:.0%}")
