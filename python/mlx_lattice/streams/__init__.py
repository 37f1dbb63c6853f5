"""Clouds that are larger than memory: docs/larger-than-memory.md."""

from .predict import Job, Prediction

__all__ = ["Job", "Prediction"]
