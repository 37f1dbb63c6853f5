"""Values: sparse tensors, coordinate sets, kernels and relations."""

from .._ext import set_thread_count, thread_count
from . import coords, neighbors, points, relations, tensor, weights
from .coords import *  # noqa: F403
from .neighbors import *  # noqa: F403
from .points import *  # noqa: F403
from .relations import *  # noqa: F403
from .tensor import *  # noqa: F403
from .weights import *  # noqa: F403

__all__ = ["set_thread_count", "thread_count"]
__all__ += [
    *coords.__all__,
    *neighbors.__all__,
    *points.__all__,
    *relations.__all__,
    *tensor.__all__,
    *weights.__all__,
]
