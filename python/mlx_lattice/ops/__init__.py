"""Operations on coordinates, relations and sparse tensors."""

from . import coords, relations
from .coords import *  # noqa: F403
from .relations import *  # noqa: F403

__all__ = [*coords.__all__, *relations.__all__]
