// Reductions over the edges of a relation, over groups of rows and along maps of rows: the
// questions of pool, segments, argmax, gather and map_rows, and the functions that launch the
// answers.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lattice/core/relation.h"
#include "lattice/core/row_groups.h"
#include "lattice/core/row_map.h"
#include "lattice/routes/decide.h"

namespace lattice::routes {

// mean_adjoint: the adjoint of mean. max_match and tie_share: the two halves of the gradient of max
// (ops/reduce_edges.h).
enum class ReduceMode { sum, mean, max, min, mean_adjoint, max_match, tie_share };
const char* name(ReduceMode mode);
// The mode whose kernels run: adjoints run on those of a sum.
ReduceMode plain_mode(ReduceMode mode);

// Rows of the output end from the rows of the input end.
struct PoolAsked {
  mx::array x;  // of max_match: what is summed; of tie_share: what is shared, rows of the output
  Relation::Ptr relation;
  ReduceMode mode = ReduceMode::sum;
  std::vector<float> offset_weights = {};  // one per offset, or none
  // Of max_match and tie_share: an edge counts where top of its output row equals value of its
  // input row.
  struct Match {
    mx::array top, value;
  };
  std::optional<Match> match = {};
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};
// Groups from their rows. Modes are sum, mean, max and min.
struct SegmentsAsked {
  mx::array x;
  RowGroups::Ptr groups;
  ReduceMode mode = ReduceMode::sum;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};
// The smallest row with the maximum, or the minimum: of the edges of a relation, or of groups.
struct ArgmaxAsked {
  mx::array x;
  Relation::Ptr relation = {};  // this
  RowGroups::Ptr groups = {};   // or this
  bool minimum = false;
  mx::StreamOrDevice stream = {};
  int64_t n_out() const { return relation ? relation->n_out() : groups->n_groups(); }
  Facts facts() const;
  std::string variant() const;
};
// Rows from their groups; `fill` where a row has none.
struct GatherAsked {
  mx::array x;
  RowGroups::Ptr groups;
  float fill = 0;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};
// Rows along a map: voxels, interpolation, neighbors.
struct MapRowsAsked {
  mx::array x;
  RowMap::Ptr map;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};

const Table<PoolAsked, mx::array>& pool_rows();
const Table<SegmentsAsked, mx::array>& segments_rows();
const Table<ArgmaxAsked, mx::array>& argmax_rows();
const Table<GatherAsked, mx::array>& gather_rows();
const Table<MapRowsAsked, mx::array>& map_rows_rows();

std::vector<PoolAsked> probe_cases(const PoolAsked& like);
std::vector<SegmentsAsked> probe_cases(const SegmentsAsked& like);
std::vector<ArgmaxAsked> probe_cases(const ArgmaxAsked& like);
std::vector<GatherAsked> probe_cases(const GatherAsked& like);
std::vector<MapRowsAsked> probe_cases(const MapRowsAsked& like);

mx::array pool_tiles(const PoolAsked& asked, const Route& route);
mx::array pool_reference(const PoolAsked& asked, const Route& route);
mx::array segments_segments(const SegmentsAsked& asked, const Route& route);
mx::array segments_reference(const SegmentsAsked& asked, const Route& route);
mx::array argmax_segments(const ArgmaxAsked& asked, const Route& route);
mx::array gather_by_rows(const GatherAsked& asked, const Route& route);
mx::array map_rows_segments(const MapRowsAsked& asked, const Route& route);
mx::array map_rows_reference(const MapRowsAsked& asked, const Route& route);

// Edges of an output row are taken as KernelRelation.output_csr has them: by offset, then input
// row, unless the user gave the edges.
mx::array pool_with_metal(const PoolAsked& asked);
mx::array segments_with_metal(const SegmentsAsked& asked);
mx::array argmax_with_metal(const ArgmaxAsked& asked);
mx::array gather_with_metal(const GatherAsked& asked);
mx::array map_rows_with_metal(const MapRowsAsked& asked);

// Plain MLX operations in float32: for devices without a kernel of the library, and for comparison
// on the others.
mx::array pool_with_mlx(const PoolAsked& asked);
mx::array segments_with_mlx(const SegmentsAsked& asked);
mx::array gather_with_mlx(const GatherAsked& asked);
mx::array map_rows_with_mlx(const MapRowsAsked& asked);

}  // namespace lattice::routes
