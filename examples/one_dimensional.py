"""Does the band widen where there are no data, and does it cover the truth?

    python examples/one_dimensional.py --out build/one_dimensional.png

draws the paper's figure of eight panels: a function from a GP with kernel exp(-(x - x')^2), seen
with noise on [-3, 3] and tested on [-5, 5]. Above, a deep GP with two hidden layers of ten
features; below, a deep kernel on an MLP 1-100-50-10; level 6; 1, 10, 20 and 50 samples per step.
``--functions 5`` prints scores averaged over five such functions instead.
"""

import argparse
from pathlib import Path

from sikagp.experiments.figures import one_dimensional
from sikagp.training.configuration import OBJECTIVES


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/one_dimensional.png"))
    parser.add_argument("--epochs", type=int, default=20, help="rounds of 20 passes")
    samples = list(one_dimensional.SAMPLES)
    parser.add_argument("--samples", type=int, nargs="+", default=samples)
    parser.add_argument("--objective", choices=OBJECTIVES, default="predictive")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--functions", type=int, help="average scores over so many functions instead of drawing"
    )
    options = vars(parser.parse_args())
    out, functions = options.pop("out"), options.pop("functions")
    if functions:
        scores = one_dimensional.average(functions, **options)
    else:
        figure, scores = one_dimensional.draw(**options)
        out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(out, dpi=120)
        print(f"Figure: {out}")
    for panel, values in scores.items():
        print(f"{panel:12}", "   ".join(f"{name} {value:.3f}" for name, value in values.items()))


if __name__ == "__main__":
    main()
