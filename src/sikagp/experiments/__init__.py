"""Experiments: data, methods, recipes and reports."""
