"""Datasets that are known by name: facts, fetching, decoding, the cache."""
