"""Does the band widen where there are no data, and does it cover the truth?

    python examples/one_dimensional.py --out build/one_dimensional.png

draws the paper's figure of eight panels: a function from a GP with kernel exp(-(x - x')^2), seen
with noise on [-3, 3] and tested on [-5, 5]. Above, a deep GP with two hidden layers of ten
features; below, a deep kernel on an MLP 1-100-50-10; level 6; 1, 10, 20 and 50 samples per step.
"""

import argparse
from pathlib import Path

from sikagp.experiments.figures import one_dimensional


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/one_dimensional.png"))
    parser.add_argument("--epochs", type=int, default=20, help="rounds of 20 passes")
    samples = list(one_dimensional.SAMPLES)
    parser.add_argument("--samples", type=int, nargs="+", default=samples)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    figure, scores = one_dimensional.draw(
        samples=options.samples, epochs=options.epochs, seed=options.seed
    )
    for panel, values in scores.items():
        print(f"{panel:12}", "   ".join(f"{name} {value:.3f}" for name, value in values.items()))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=120)
    print(f"Figure: {options.out}")


if __name__ == "__main__":
    main()
