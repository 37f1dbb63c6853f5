"""Point clouds as they are: ragged batches, segments, point convolution."""

from . import aliases, functions, segments
from .aliases import *  # noqa: F403
from .batches import OffsetPointCloudBatch, PointCloudBatch
from .custom_gradient import custom_sparse_op_with_grad
from .functions import *  # noqa: F403
from .geometry import PointSet
from .graphs import DGCNN, EdgeConv
from .layers import (
    FullCoverConv3d,
    GenerativeConv3d,
    GlobalPool,
    PartitionConv3d,
    PointConv3d,
    Upsample,
    max_pool3d,
)
from .networks import BasicBlock, Bottleneck, PointClassifier, PointUNet
from .norms import RaggedBatchNorm, RaggedGroupNorm, RaggedInstanceNorm, RaggedLayerNorm, RowNorm
from .pointcnn import PointCNNConv, PointCNNEncoder, knn_graph
from .pointnet2 import FeaturePropagation, PointNet2, SetAbstraction
from .registration import Registration, icp, radius_inliers, statistical_inliers
from .resnet import (
    PointResNet,
    resnet18,
    resnet34,
    resnet50,
    resnet101,
    resnet152,
    resnext50_32x4d,
    resnext101_32x8d,
    wide_resnet50_2,
    wide_resnet101_2,
)
from .segments import *  # noqa: F403
from .training import evaluate, train_pointcnn

__all__ = [
    "DGCNN",
    "BasicBlock",
    "Bottleneck",
    "EdgeConv",
    "FeaturePropagation",
    "FullCoverConv3d",
    "GenerativeConv3d",
    "GlobalPool",
    "OffsetPointCloudBatch",
    "PartitionConv3d",
    "PointCNNConv",
    "PointCNNEncoder",
    "PointClassifier",
    "PointCloudBatch",
    "PointConv3d",
    "PointNet2",
    "PointResNet",
    "PointSet",
    "PointUNet",
    "RaggedBatchNorm",
    "RaggedGroupNorm",
    "RaggedInstanceNorm",
    "RaggedLayerNorm",
    "Registration",
    "RowNorm",
    "SetAbstraction",
    "Upsample",
    "custom_sparse_op_with_grad",
    "evaluate",
    "icp",
    "knn_graph",
    "max_pool3d",
    "radius_inliers",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "statistical_inliers",
    "train_pointcnn",
    "wide_resnet50_2",
    "wide_resnet101_2",
    *aliases.__all__,
    *segments.__all__,
]
__all__ += [name for name in functions.__all__ if name not in __all__]
