"""Compiled loops and the threads that they run on: the only place that imports numba."""
