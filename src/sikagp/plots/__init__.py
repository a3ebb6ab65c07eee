"""Pictures of predictions and of their calibration (needs matplotlib, extra ``experiments``).

Every function draws on the Axes it is given, or on a new figure, and returns the Axes. Values may
be tensors on any device or NumPy arrays. Colours are safe for the colour-blind; line styles and
hatching tell curves apart in grey print too.
"""

from sikagp.plots.calibration import plot_coverage, plot_entropy, plot_reliability
from sikagp.plots.functions import plot_component, plot_components, plot_fit

__all__ = [
    "plot_component",
    "plot_components",
    "plot_coverage",
    "plot_entropy",
    "plot_fit",
    "plot_reliability",
]
