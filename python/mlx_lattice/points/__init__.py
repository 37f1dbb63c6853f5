"""Point clouds without voxels: ragged batches, segments, point convolution."""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._ext import Rulebook
from ..ops.distance import indexed_distance, indexed_distance_blocked, indexed_pair_distance
from ..ops.rulebook import (
    build_full_cover_rulebook,
    build_generative_rulebook,
    build_partition_rulebook,
    build_rulebook,
    build_subdivision_rulebook,
    clip_neighbors,
    grid_downsample,
    radius_scaler,
    radius_search,
    rulebook_from_triplets,
    voxel_tap,
)
from ..ops.segments import (
    indexed_segment_reduce,
    scatter_reduce,
    segment_expand,
    segment_reduce,
    segment_reduce_offsets,
    segment_softmax,
)
from ..ops.triplets import mvmr, mvmr_on, point_conv, triplet_relation, vvor
from . import aliases
from .aliases import *  # noqa: F403
from .batches import OffsetPointCloudBatch, PointCloudBatch
from .custom_gradient import custom_sparse_op_with_grad
from .dgcnn import DGCNN, EdgeConv
from .layers import (
    FullCoverConv3d,
    GenerativeConv3d,
    GlobalPool,
    PartitionConv3d,
    PointConv3d,
    Upsample,
    max_pool3d,
)
from .neighbors import knn_graph, nearest_neighbors
from .networks import BasicBlock, Bottleneck, PointClassifier, PointUNet
from .norms import RaggedBatchNorm, RaggedGroupNorm, RaggedInstanceNorm, RaggedLayerNorm, RowNorm
from .point_set import PointSet
from .pointcnn import PointCNNConv, PointCNNEncoder
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

if _TYPE_CHECKING:
    from ..training.point_networks import evaluate, train_pointcnn

__all__ = [
    *aliases.__all__,
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
    "Rulebook",
    "SetAbstraction",
    "Upsample",
    "build_full_cover_rulebook",
    "build_generative_rulebook",
    "build_partition_rulebook",
    "build_rulebook",
    "build_subdivision_rulebook",
    "clip_neighbors",
    "custom_sparse_op_with_grad",
    "evaluate",
    "grid_downsample",
    "icp",
    "indexed_distance",
    "indexed_distance_blocked",
    "indexed_pair_distance",
    "indexed_segment_reduce",
    "knn_graph",
    "max_pool3d",
    "mvmr",
    "mvmr_on",
    "nearest_neighbors",
    "point_conv",
    "radius_inliers",
    "radius_scaler",
    "radius_search",
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "resnet152",
    "resnext50_32x4d",
    "resnext101_32x8d",
    "rulebook_from_triplets",
    "scatter_reduce",
    "segment_expand",
    "segment_reduce",
    "segment_reduce_offsets",
    "segment_softmax",
    "statistical_inliers",
    "train_pointcnn",
    "triplet_relation",
    "voxel_tap",
    "vvor",
    "wide_resnet50_2",
    "wide_resnet101_2",
]


def __getattr__(name: str) -> object:
    """`train_pointcnn` and `evaluate` belong to training, which is loaded when they are used."""
    if name in ("evaluate", "train_pointcnn"):
        from ..training import point_networks

        return getattr(point_networks, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
