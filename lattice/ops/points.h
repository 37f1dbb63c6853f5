/// @file
/// Points to voxels and back.
///
///     q = (p - origin) / voxel_size, voxel = floor(q), in float32 or float64
///     voxelize:    y[v] = sum, mean or max of feats[p] over the points p of voxel v,
///                  in ascending order of p
///     devoxelize:  y[p] = sum over the lattice points around q of weight * voxels[row]
///
/// Points are (N, 3), float64, float32, float16 or bfloat16. float64 is for maps, where float32 has
/// steps of half a meter. Geometry is computed at once, on the CPU; features stay lazy and
/// differentiable. A point that is not finite, or whose voxel leaves int32,
/// is std::invalid_argument that names its row. Neither the tensor's stride nor anything else
/// enters the arithmetic: voxel_size is the edge of the voxels at hand.
#pragma once

#include <mlx/utils.h>

#include <array>
#include <optional>
#include <string_view>

#include "lattice/core/point_values.h"
#include "lattice/core/sparse_tensor.h"

namespace lattice {

/// Where voxels lie.
struct PointOptions {
  std::array<double, 3> voxel_size{1, 1, 1};  ///< finite, > 0
  std::array<double, 3> origin{0, 0, 0};      ///< finite
  std::optional<mx::array> batch_indices;     ///< (N,) integers >= 0; none: 0
};

/// Voxels first seen first. `active_rows`, a (1,) int32 array: only that many leading points take
/// part.
LATTICE_API SparseQuantization sparse_quantize(
    const mx::array& points, const PointOptions& options = {},
    const std::optional<mx::array>& active_rows = std::nullopt, mx::StreamOrDevice s = {});

/// The tensor of reduced features, feats (N, C).
LATTICE_API SparseTensor voxelize(const mx::array& points, const mx::array& feats,
                                  const PointOptions& options = {},
                                  const std::optional<mx::array>& active_rows = std::nullopt,
                                  Reduction reduction = Reduction::mean,
                                  const Triple& stride = {1, 1, 1}, mx::StreamOrDevice s = {});
/// On a quantization made before. A `like` tensor lends its identity: it must have the
/// quantization's coordinates; its stride is the result's.
LATTICE_API SparseTensor voxelize_with_quantization(
    const SparseQuantization& quantization, const mx::array& feats,
    Reduction reduction = Reduction::mean, const Triple& stride = {1, 1, 1},
    const std::optional<SparseTensor>& like = std::nullopt, mx::StreamOrDevice s = {});

/// How a point reads voxels.
enum class Interpolation { linear, nearest };
/// The choice of a name. Throws std::invalid_argument that lists the choices.
LATTICE_API Interpolation parse_interpolation(std::string_view name, std::string_view operation);

/// linear: slot x + 2 y + 4 z is the row of floor(q) + (x, y, z), or -1 with weight 0 where there
/// is no such row. Weights are not rescaled. nearest: slot 0 is the row of floor(q + 0.5), the
/// others are -1. voxel_coords (M, 4) int32, free of duplicates.
LATTICE_API PointVoxelMap build_point_voxel_map(
    const mx::array& points, const mx::array& voxel_coords,
    const std::optional<mx::array>& voxel_active_rows = std::nullopt,
    const PointOptions& options = {}, Interpolation interpolation = Interpolation::linear,
    mx::StreamOrDevice s = {});
/// (P, C) from (M, C), slots in ascending order.
LATTICE_API mx::array interpolate_point_features(const mx::array& voxel_feats,
                                                 const PointVoxelMap& map,
                                                 mx::StreamOrDevice s = {});
/// Both at once.
LATTICE_API mx::array devoxelize(const mx::array& points, const SparseTensor& voxels,
                                 const PointOptions& options = {},
                                 Interpolation interpolation = Interpolation::linear,
                                 mx::StreamOrDevice s = {});

}  // namespace lattice
