"""Random numbers for batches and noise: repeatable from a seed, or fresh from the operating system."""
