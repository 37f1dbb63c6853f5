"""Point clouds as they are: ragged batches, segments, point convolution."""

from . import segments
from .segments import *  # noqa: F403

__all__ = [*segments.__all__]
