"""Federated learning that is private for every record, fair to every data holder, and accurate."""
