"""Operations on coordinates, relations and sparse tensors."""

from . import conv, coords, points, pool, relations
from .conv import *  # noqa: F403
from .coords import *  # noqa: F403
from .points import *  # noqa: F403
from .pool import *  # noqa: F403
from .relations import *  # noqa: F403

__all__ = [*conv.__all__, *coords.__all__, *points.__all__, *pool.__all__, *relations.__all__]
