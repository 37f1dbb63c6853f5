/// @file
/// Sampling, normals and neighbor graphs of points. Results are concrete: they are computed on the
/// CPU when the function is called, and have no derivative.
///
///     farthest_point_sample  rows such that each is farthest from all rows before it
///     estimate_normals       direction of least variance of the k nearest points, and curvature
///     knn_rows               the k nearest rows in any number of dimensions
///
/// Every result is exact and the same for any number of threads; equal distances go by row.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "lattice/core/names.h"

namespace lattice {

/// (count,) int32 rows of points (N, 3); the first is row `start`.
LATTICE_API mx::array farthest_point_sample(const mx::array& points, int64_t count,
                                            int64_t start = 0);

/// (normals (N, 3), curvature (N,)) float32 from the k nearest points, the point itself among them.
/// Normals point to `viewpoint`.
LATTICE_API std::pair<mx::array, mx::array> estimate_normals(
    const mx::array& points, int64_t k, const std::array<float, 3>& viewpoint = {});

/// (rows (M, k) int32, squared distances (M, k) float32), nearest first. feats is (N, C), queries
/// is (M, C). Without queries each row asks and finds itself first. Three dimensions take a
/// kd-tree, which gives the same result.
LATTICE_API std::pair<mx::array, mx::array> knn_rows(
    const mx::array& feats, int64_t k, const std::optional<mx::array>& queries = std::nullopt);

/// (T, k) int32: for each row of x (T, C) the k nearest rows of its own cloud, itself first. A
/// cloud of fewer than k rows repeats the first neighbor. lengths (B,): the rows of each cloud.
LATTICE_API mx::array feature_graph(const mx::array& x, int64_t k, const mx::array& lengths);

/// (rows (M,), counts (B,)) int32: farthest points of each cloud of positions (T, 3): `share` of
/// its points, rounded half to even, at least one where there is one.
LATTICE_API std::pair<mx::array, mx::array> sample_centers(const mx::array& positions,
                                                           const mx::array& lengths, double share);

}  // namespace lattice
