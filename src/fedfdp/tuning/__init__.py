"""Choosing settings by measuring them: a grid, successive halving, and the Pareto front of what came out."""
