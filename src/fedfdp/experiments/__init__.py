"""The paper's tables and figures: what it printed, how each is set up, and the runs that measure them again."""
