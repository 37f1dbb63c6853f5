"""Point clouds as they are: ragged batches, segments, point convolution."""

from . import functions, segments
from .batches import OffsetPointCloudBatch, PointCloudBatch
from .custom import custom_sparse_op_with_grad
from .functions import *  # noqa: F403
from .norms import RaggedBatchNorm, RaggedGroupNorm, RaggedInstanceNorm, RaggedLayerNorm, RowNorm
from .pointcnn import PointCNNConv, PointCNNEncoder, knn_graph
from .segments import *  # noqa: F403
from .training import evaluate, train_pointcnn

__all__ = [
    "OffsetPointCloudBatch",
    "PointCNNConv",
    "PointCNNEncoder",
    "PointCloudBatch",
    "RaggedBatchNorm",
    "RaggedGroupNorm",
    "RaggedInstanceNorm",
    "RaggedLayerNorm",
    "RowNorm",
    "custom_sparse_op_with_grad",
    "evaluate",
    "knn_graph",
    "train_pointcnn",
    *functions.__all__,
    *segments.__all__,
]
