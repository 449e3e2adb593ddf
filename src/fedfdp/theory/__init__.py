"""The convergence bound of the paper's Theorem 2 and the λ* that makes it least: pure arithmetic on given constants."""
