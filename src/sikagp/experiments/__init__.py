"""Reproduction of the paper: data, recipes, runs, report; ``pip install 'sikagp[experiments]'``."""
