"""Values: sparse tensors, coordinate sets, kernels and relations."""

from ..devices import set_thread_count, thread_count
from . import coords, layouts, neighbors, points, relations, tensor, weights
from .coords import *  # noqa: F403
from .layouts import *  # noqa: F403
from .neighbors import *  # noqa: F403
from .points import *  # noqa: F403
from .relations import *  # noqa: F403
from .tensor import *  # noqa: F403
from .weights import *  # noqa: F403

__all__ = ["set_thread_count", "thread_count"]
__all__ += [
    *coords.__all__,
    *layouts.__all__,
    *neighbors.__all__,
    *points.__all__,
    *relations.__all__,
    *tensor.__all__,
    *weights.__all__,
]

# Names of the older package, which need no help of their own.
from ..compat import *  # noqa: E402, F403
from .coords import (  # noqa: E402, F401
    build_sparse_alignment,
    child_coords_from_indices,
    occupancy_downsample,
    occupancy_expand,
)
from .points import build_point_voxel_map, interpolate_point_features  # noqa: E402, F401
from .relations import (  # noqa: E402, F401
    build_generative_relation,
    build_kernel_relation,
    build_submanifold_kernel_relation,
    build_target_kernel_relation,
    build_transposed_kernel_relation,
    kernel_offsets,
)
from .weights import dequantize_weight, quantize_weight  # noqa: E402, F401
