"""Simulations over the cores and machines of a Ray cluster: settings, the driver's engine, a worker, runs at once."""
