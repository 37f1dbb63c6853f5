"""Operations on coordinates, relations and sparse tensors."""

from . import (
    algebra,
    boxes,
    codec,
    conv,
    coords,
    entropy,
    features,
    layouts,
    maps,
    neighbors,
    optimizer,
    points,
    pool,
    quantize,
    relations,
    surface,
    voxels,
)
from . import attention as _attention  # the function has the module's name
from .algebra import *  # noqa: F403
from .attention import *  # noqa: F403
from .boxes import *  # noqa: F403
from .codec import *  # noqa: F403
from .conv import *  # noqa: F403
from .coords import *  # noqa: F403
from .entropy import *  # noqa: F403
from .features import *  # noqa: F403
from .layouts import *  # noqa: F403
from .maps import *  # noqa: F403
from .neighbors import *  # noqa: F403
from .optimizer import *  # noqa: F403
from .points import *  # noqa: F403
from .pool import *  # noqa: F403
from .quantize import *  # noqa: F403
from .relations import *  # noqa: F403
from .surface import *  # noqa: F403
from .voxels import *  # noqa: F403

__all__ = [
    *algebra.__all__,
    *_attention.__all__,
    *boxes.__all__,
    *codec.__all__,
    *conv.__all__,
    *coords.__all__,
    *entropy.__all__,
    *features.__all__,
    *layouts.__all__,
    *maps.__all__,
    *neighbors.__all__,
    *optimizer.__all__,
    *points.__all__,
    *pool.__all__,
    *quantize.__all__,
    *relations.__all__,
    *surface.__all__,
    *voxels.__all__,
]

# Value classes that the older package shows here too.
from .._ext import (  # noqa: F401
    CoordinateOrdering,
    CoordinateSet,
    OccupancyExpansion,
    SparseAlignment,
    SparseOccupancy,
    SparseQuantization,
)
