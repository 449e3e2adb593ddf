"""Runs on disk."""

from fedfdp.runs.folder import RunFolder

__all__ = ["RunFolder"]
