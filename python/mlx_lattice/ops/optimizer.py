"""The arithmetic of optimizers; docs/ops/optimizer.md."""

from .._ext import adamw_step

__all__ = ["adamw_step"]
