// A kernel relation: a set of edges (input row, output row, offset id), with the views that kernels
// and users read (relation_views.h).
//
// Built from coordinates it holds the sorted lists of kernels/cpu/geometry/relation_lists.h, 4 to 8
// bytes per edge. Every other view is made on first use, once, from any thread, and kept.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/kernel_spec.h"
#include "lattice/core/map_key.h"
#include "lattice/core/relation_views.h"
#include "lattice/kernels/cpu/geometry/edges.h"

namespace lattice {

enum class RelationKind {
  forward,
  target,
  submanifold,
  transposed,
  generative,
  target_transposed,
  custom
};
const char* kind_name(RelationKind kind);
// Kinds whose offsets start at 0 instead of being centered.
bool offsets_start_at_zero(RelationKind kind);

// Edges of a part of edge_tiles() and of edge_parts().
inline constexpr int32_t kTileEdges = 64;
inline constexpr int32_t kPartEdges = 1024;

class Relation : public std::enable_shared_from_this<Relation> {
 public:
  using Ptr = std::shared_ptr<const Relation>;
  // Whoever builds a relation may name it (kind, output key) before it is shared.
  using Fresh = std::shared_ptr<Relation>;

  // From sorted lists; out_coords are the rows of the output end.
  static Fresh from_lists(RelationKind kind, const KernelSpec& spec, cpu::RelationLists lists,
                          CoordinateSet out_coords);
  // The same without coordinates; kind custom.
  static Fresh from_lists(cpu::RelationLists lists);
  // From edge arrays in any order. Checks lengths, dtypes and ranges.
  static Fresh from_edges(const mx::array& in_rows, const mx::array& out_rows,
                          const mx::array& kernel_ids, int64_t n_in, int64_t n_out,
                          int64_t n_kernels);

  // From out_in_map (n_out, n_k) and its masks, evaluated.
  static Fresh from_map(RelationKind kind, const KernelSpec& spec, int64_t n_in, ImplicitGemm map,
                        CoordinateSet out_coords);

  // Every row of n with itself, one offset.
  static Ptr identity(int64_t n);

  RelationKind kind() const { return kind_; }
  const KernelSpec& spec() const { return spec_; }
  int64_t n_in() const { return n_in_; }
  int64_t n_out() const { return n_out_; }
  int64_t n_kernels() const { return n_k_; }
  int64_t edge_count() const { return n_edges_; }
  // Throws when the relation was made from edges or is reversed.
  const CoordinateSet& out_coords() const;
  bool has_out_coords() const { return out_coords_.has_value(); }
  // Offsets in id order; empty for a custom relation.
  std::vector<Triple> offsets() const;
  // Where the output coordinates live in the manager that built this.
  const std::optional<CoordinateMapKey>& out_key() const { return out_key_; }

  const cpu::RelationLists& lists() const;
  const cpu::TileBounds& tiles() const;
  // Ends swapped; arrays are shared. reversed()->reversed() is this object while it lives.
  Ptr reversed() const;
  bool is_reversed() const { return is_reversed_; }

  const Edges& edges() const;
  // Whether edges() ascends in the output row, so that output_csr().edge_ids counts 0, 1, 2, ... It
  // does unless the user gave them.
  bool edges_by_output() const { return !given_edges_; }
  const EdgeGroups& output_csr() const;
  const EdgeGroups& input_csr() const;
  const EdgeGroups& kernel_csr() const;
  const ImplicitGemm& implicit_gemm() const;
  // n_kernels <= 32; kinds forward, target, submanifold.
  const SortedImplicitGemm& sorted_implicit_gemm() const;
  // Any relation, also with several edges of one offset in a row.
  const TileLists& tile_lists() const;
  // What kernels of a GPU read beside these. Edges of an offset are in parts of 64 and of 1,024,
  // long rows of output_csr() in pieces.
  const EdgeParts& edge_tiles() const;
  const EdgeParts& edge_parts() const;
  const std::vector<SegmentPieces>& output_pieces() const;
  // Whether every output row has exactly one edge.
  bool has_one_edge_per_output() const;
  cpu::Coverage coverage() const;

  // Bytes held now, views that exist included.
  size_t nbytes() const;
  std::string text() const;

  ~Relation();

 private:
  friend class CoordinateManager;
  Relation();
  struct Views;

  RelationKind kind_ = RelationKind::custom;
  KernelSpec spec_;
  int64_t n_in_ = 0, n_out_ = 0, n_k_ = 0, n_edges_ = 0;
  std::optional<CoordinateSet> out_coords_;
  std::optional<CoordinateMapKey> out_key_;
  bool is_reversed_ = false;
  bool given_edges_ = false;  // made by from_edges: the edge arrays keep the user's order
  std::unique_ptr<Views> views_;
};

// The checks of relate(): target given where it must be, dtypes, the specification of the kind.
void check_relate(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                  const std::optional<CoordinateSet>& target, std::string_view operation);

// Builds a relation from coordinates, as docs/ops/relations.md defines the kinds.
// `target` is given for the two target kinds only. Throws std::invalid_argument,
// std::overflow_error; `operation` heads the message.
Relation::Fresh relate(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                       const std::optional<CoordinateSet>& target, std::string_view operation);

}  // namespace lattice
