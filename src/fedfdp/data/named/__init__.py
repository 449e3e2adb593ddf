"""Datasets by name: a module for each, the catalog that lists them, and what fetches, caches and loads them."""
