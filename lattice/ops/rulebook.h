/// @file
/// Geometry of point convolution: ragged sets of points, downsampling, neighbors, and rulebooks
/// (arXiv 2511.23227).
///
/// A rulebook is the relation of the edges (source point, target point, kernel cell). Source p_j is
/// near target q_i. The cell of the kernel is l = clamp(round_half_even((p_j - q_i) / grid) + ks /
/// 2, 0, ks - 1) for each axis, k = (l_x ks + l_y) ks + l_z. Several sources may share a cell.
/// Everything here is concrete and immutable, and no gradient flows through it.
#pragma once

#include <mlx/utils.h>

#include <optional>
#include <string_view>
#include <vector>

#include "lattice/core/point_set.h"
#include "lattice/core/relation.h"

namespace lattice {

/// The region that a kernel reaches: a ball or a cube.
enum class KernelShape { ball, cube };
/// The shape of a name. Throws std::invalid_argument that lists the choices.
LATTICE_API KernelShape parse_shape(std::string_view name, std::string_view function);

/// Radius / grid of a kernel of ks cells along an axis. The cube has an edge of ks cells times rfs.
/// The radius is that of the ball with the volume of this cube, or half the edge.
LATTICE_API float radius_scaler(int64_t ks, float rfs = 1, KernelShape shape = KernelShape::ball);
/// (N, 3) offsets -> (N,) int32 kernel cells.
LATTICE_API mx::array voxel_tap(const mx::array& offsets, float grid, int64_t ks);

/// Points that each query found.
struct Neighbors {
  mx::array rows;       ///< (E,) int32: rows of the points, query after query, ascending
  mx::array counts;     ///< (Q,) int32
  mx::array distances;  ///< (E,) float32
};
/// Points with sqrt(d^2) <= radius (cube: max |d|) in float32, of the query's own cloud.
LATTICE_API Neighbors radius_search(const PointSet& points, const PointSet& queries, float radius,
                                    KernelShape shape = KernelShape::ball);

/// Of each query the `most` nearest at most, by (distance, row); rows ascending again.
LATTICE_API Neighbors clip_neighbors(const Neighbors& neighbors, int64_t most);

/// One point for each cell floor(p / cell) that has some, by cloud, z, y, x. Empty clouds stay.
enum class GridPick { center_nearest, center, mean, first };
/// The choice of a name. Throws std::invalid_argument that lists the choices.
LATTICE_API GridPick parse_pick(std::string_view name, std::string_view function);
/// The result of grid_downsample().
struct Downsampled {
  PointSet points;    ///< grid: cell
  mx::array indices;  ///< (M,) int32: the source row that was picked (center_nearest, first), else
                      /// the first of the cell
  mx::array cell_of;  ///< (N,) int32: the row of `points` of each source row
};
/// One point for each cell that holds some; `pick` says which.
LATTICE_API Downsampled grid_downsample(const PointSet& points, float cell,
                                        GridPick pick = GridPick::center_nearest);

/// A relation of points, with the kernel that made it.
struct LATTICE_API Rulebook {
  Relation::Ptr relation;   ///< n_in sources, n_out targets, ks^3 offsets
  int64_t kernel_size = 0;  ///< cells along an axis; 0 where there is no such number
  float radius = 0;         ///< how far the kernel reaches
  float grid = 0;           ///< the size of a cell
  /// Ends swapped, same cells: the upsampling that belongs to a strided convolution. With `negate`
  /// the cells are those of the opposite offsets, as seen from the other end. A kernel of even size
  /// has no opposite for its first cells.
  Rulebook transposed(bool negate = false) const;
  /// (i, j, k, seg_offs): target, source and cell of every edge, ordered by (k, i, j), and where
  /// each k begins.
  std::vector<mx::array> triplets() const;
  /// Distinct (k, i).
  int64_t n_buckets() const;
  /// Whether every target has exactly one edge.
  bool exact_cover_out() const;
  /// Whether every source has exactly one edge.
  bool exact_cover_in() const;
};
/// Radius: src.grid * radius_scaler(ks, rfs, shape) unless given. A target without neighbors is an
/// error unless allow_empty.
LATTICE_API Rulebook build_rulebook(const PointSet& src, const PointSet& dst, int64_t ks,
                                    float rfs = 1, KernelShape shape = KernelShape::ball,
                                    std::optional<float> radius = std::nullopt,
                                    bool allow_empty = false);
/// Given edges in any order: target i, source j, cell k < n_k. kernel_size is the cube root of n_k,
/// 0 where there is none.
LATTICE_API Rulebook rulebook_from_triplets(const mx::array& i, const mx::array& j,
                                            const mx::array& k, int64_t n_out, int64_t n_in,
                                            int64_t n_k);
/// The result of a partition. Every point lies in exactly one cell of side stride * grid. The
/// target is the center of the cell. The kernel cell is one of the ks^3 parts of the cell.
struct Partition {
  Rulebook rulebook;  ///< each source with its cell
  PointSet targets;   ///< the centers of the cells
};
/// The partition of the points of src into cells. Throws std::invalid_argument.
LATTICE_API Partition build_partition_rulebook(const PointSet& src, float stride, int64_t ks);

/// Targets so that every source lies within R = grid * sqrt(3) / 2 * stride * (1 + margin) of a
/// target. They are the points nearest the centers of the cells of side stride * grid, and a
/// maximal net over the other points (kernels/cpu/geometry/full_cover.h). Edges are the sources
/// within R. Offsets are never clamped: ks >= 2 ceil(R / grid) + 1. The way back is
/// rulebook.transposed(true).
struct FullCover {
  Rulebook rulebook;    ///< sources within R of each target
  PointSet targets;     ///< grid: stride * grid
  mx::array indices;    ///< (M,) int32: the source row of each target; by cloud, nearest the center
                        /// before added, then row
  int64_t n_added = 0;  ///< targets that the net added
};
/// The cover of the points of src. Throws std::invalid_argument, also for a kernel that would clamp
/// an offset.
LATTICE_API FullCover build_full_cover_rulebook(const PointSet& src, float stride, int64_t ks,
                                                float margin = 1e-2f);

/// Targets that are made. They are the centers of the voxels v + stencil[k] of side grid /
/// expansion, v = floor(p / side) of each source. Each voxel appears once; the order is cloud, z,
/// y, x. Edge k of a source goes to its voxel k: N * K edges. Without a stencil (K, 3) the cube of
/// ks^3.
struct Generated {
  Rulebook rulebook;  ///< each source with its voxels
  PointSet targets;   ///< grid: grid / expansion
};
/// The targets that a kernel of ks^3 cells makes around the points of src.
LATTICE_API Generated
build_generative_rulebook(const PointSet& src, int64_t ks, float expansion = 1,
                          const std::optional<mx::array>& stencil = std::nullopt);
/// The expansion^3 parts of the voxel floor(p / grid) of each source.
LATTICE_API Generated build_subdivision_rulebook(const PointSet& src, int64_t expansion);

}  // namespace lattice
