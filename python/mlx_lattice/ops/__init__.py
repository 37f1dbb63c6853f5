"""Operations on coordinates, relations and sparse tensors."""

from . import relations
from .relations import *  # noqa: F403

__all__ = [*relations.__all__]
