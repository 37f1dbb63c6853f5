/// @file
/// Outlier removal and registration of clouds, in float64 around a float32 search for neighbors.
///
///     auto cloud = lattice::read_cloud("scan.pcd");
///     cloud = cloud.select(lattice::statistical_inliers(cloud));
///     const auto found = lattice::icp(cloud, map);   // map = found.pose * cloud
///
/// Positions are taken relative to the middle of their cloud before they become float32, so that
/// coordinates of maps keep their millimeters. This header uses no MLX types.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "lattice/core/cloud.h"

namespace lattice {

/// 1 for each point whose mean distance to its k nearest others is at most the mean of these
/// distances plus `ratio` of their standard deviations. Throws std::invalid_argument: a point is
/// not finite, k is not in 1..N - 1, or ratio is not above 0.
LATTICE_API std::vector<uint8_t> statistical_inliers(const Cloud& cloud, int64_t k = 16,
                                                     double ratio = 2);

/// 1 for each point with at least `least` others within the radius. Throws std::invalid_argument.
LATTICE_API std::vector<uint8_t> radius_inliers(const Cloud& cloud, double radius,
                                                int64_t least = 2);

/// Options of icp().
struct IcpOptions {
  std::optional<Column> normals = {};  ///< of the target, three each; none: from k neighbors
  std::optional<std::array<double, 16>> pose = {};  ///< where to begin, by rows; none: identity
  double reach = 1;                                 ///< pairs that are farther apart do not count
  int64_t steps = 50;                               ///< the most
  double tolerance = 1e-6;  ///< a step that turns and moves by less is the last one
  int64_t k = 16;           ///< neighbors for the normals
};

/// The result of icp().
struct Registration {
  std::array<double, 16> pose;        ///< rigid motion of the source onto the target, by rows
  std::array<double, 36> covariance;  ///< of the pose: rotation vector, then translation
  double rms = 0;                     ///< root of the mean squared distance to the planes
  int64_t pairs = 0;                  ///< at the last step
  int64_t steps = 0;                  ///< that were taken
  bool converged = false;             ///< whether the last step was below the tolerance
};

/// The rigid motion of source onto target, point to plane (Chen and Medioni, 1992). Throws
/// std::invalid_argument: fewer than six pairs within reach, or the target leaves a motion open,
/// such as a plane along which everything can slide.
LATTICE_API Registration icp(const Cloud& source, const Cloud& target,
                             const IcpOptions& options = {});

}  // namespace lattice
