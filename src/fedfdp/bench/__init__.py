"""Speed and memory of the private step and of whole rounds, beside other ways to compute the same. Trains nothing."""
