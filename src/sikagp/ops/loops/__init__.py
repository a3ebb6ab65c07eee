"""Loops that Numba compiles; importing any of them imports Numba."""
