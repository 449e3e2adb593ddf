"""Runs across machines, put together: the coordinator, the node as a process, and both on one machine to try them."""
