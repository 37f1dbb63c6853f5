/// @file
/// A kernel relation: a set of edges (input row, output row, offset id), with the views that
/// kernels and users read (relation_views.h).
///
/// Built from coordinates it holds the sorted lists of kernels/cpu/geometry/relation_lists.h, 4 to
/// 8 bytes per edge. Every other view is made on first use, once, from any thread, and kept.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lattice/core/coordinate_set.h"
#include "lattice/core/kernel_spec.h"
#include "lattice/core/relation_views.h"

namespace lattice {

/// How the edges of a relation are found; docs/ops/relations.md defines the kinds.
enum class RelationKind {
  forward,             ///< gathers onto the strided lattice
  target,              ///< gathers onto given coordinates
  submanifold,         ///< gathers onto the input's own coordinates
  transposed,          ///< scatters onto the finer lattice
  generative,          ///< scatters onto every cell that a kernel reaches
  target_transposed,   ///< scatters onto given coordinates
  reached,             ///< gathers onto every cell that a kernel reaches, or onto given ones
  reached_transposed,  ///< scatters onto every cell that a kernel reaches, inside of bounds
  custom               ///< given edges
};
/// "forward", "target" and so on.
LATTICE_API const char* kind_name(RelationKind kind);
/// @cond internal
/// Kinds whose offsets start at 0 instead of being centered.
LATTICE_API bool offsets_start_at_zero(RelationKind kind);
/// Kinds whose offsets are added to input rows; the others add them to output rows.
LATTICE_API bool scatters(RelationKind kind);
/// The two kinds whose output is every cell that a kernel reaches.
LATTICE_API bool is_reached(RelationKind kind);

/// Edges of a part of edge_tiles() and of edge_parts().
inline constexpr int32_t kTileEdges = 64;
inline constexpr int32_t kPartEdges = 1024;
/// @endcond

/// Edges between the rows of two coordinate sets. Immutable; views are made on first use and kept.
class LATTICE_API Relation : public std::enable_shared_from_this<Relation> {
 public:
  /// How relations are held.
  using Ptr = std::shared_ptr<const Relation>;
  /// A relation that is not shared yet, whose builder may still set its kind and output key.
  using Fresh = std::shared_ptr<Relation>;

  /// @cond internal
  /// From sorted lists; out_coords are the rows of the output end.
  static Fresh from_lists(RelationKind kind, const KernelSpec& spec, cpu::RelationLists lists,
                          CoordinateSet out_coords);
  /// The same without coordinates; kind custom.
  static Fresh from_lists(cpu::RelationLists lists);
  /// @endcond
  /// From edge arrays in any order. Checks lengths, dtypes and ranges.
  static Fresh from_edges(const mx::array& in_rows, const mx::array& out_rows,
                          const mx::array& kernel_ids, int64_t n_in, int64_t n_out,
                          int64_t n_kernels);

  /// @cond internal
  /// From out_in_map (n_out, n_k) and its masks, evaluated.
  static Fresh from_map(RelationKind kind, const KernelSpec& spec, int64_t n_in, ImplicitGemm map,
                        CoordinateSet out_coords);
  /// @endcond

  /// Every row of n with itself, one offset.
  static Ptr identity(int64_t n);

  /// How the edges were found.
  RelationKind kind() const { return kind_; }
  /// The kernel; of a custom relation the default one.
  const KernelSpec& spec() const { return spec_; }
  /// Whether it is identity(n_in()).
  bool is_identity() const { return is_identity_; }
  /// Input rows.
  int64_t n_in() const { return n_in_; }
  /// Output rows.
  int64_t n_out() const { return n_out_; }
  /// Kernel offsets.
  int64_t n_kernels() const { return n_k_; }
  /// Edges of all offsets together.
  int64_t edge_count() const { return n_edges_; }
  /// Throws when the relation was made from edges or is reversed.
  const CoordinateSet& out_coords() const;
  /// Whether out_coords() can be asked.
  bool has_out_coords() const { return out_coords_.has_value(); }
  /// Offsets in id order; empty for a custom relation.
  std::vector<Triple> offsets() const;
  /// The key of the output coordinates in the manager that built this relation.
  const std::optional<CoordinateMapKey>& out_key() const { return out_key_; }

  /// @cond internal
  const cpu::RelationLists& lists() const;
  const cpu::TileBounds& tiles() const;
  /// @endcond
  /// Ends swapped; arrays are shared. reversed()->reversed() is this object while it lives.
  Ptr reversed() const;
  /// Whether this is the reverse of a relation that was built.
  bool is_reversed() const { return is_reversed_; }

  /// All edges; a custom relation keeps the given order, others are ordered by output row.
  const Edges& edges() const;
  /// Whether edges() ascends in the output row, so that output_csr().edge_ids counts 0, 1, 2, ...
  /// It does unless the user gave them.
  bool edges_by_output() const { return !given_edges_; }
  /// Edges by output row.
  const EdgeGroups& output_csr() const;
  /// Edges by input row.
  const EdgeGroups& input_csr() const;
  /// Edges by offset.
  const EdgeGroups& kernel_csr() const;
  /// The input row of every output row and offset. Throws std::invalid_argument when an output row
  /// has two edges with one offset.
  const ImplicitGemm& implicit_gemm() const;
  /// n_kernels <= 32, and no output row has two edges with one offset; else std::invalid_argument.
  const SortedImplicitGemm& sorted_implicit_gemm() const;
  /// @cond internal
  /// Any relation, also with several edges of one offset in a row.
  const TileLists& tile_lists() const;
  /// Edges by offset with their rows at hand, and what else kernels of a GPU read: edges of an
  /// offset in parts of 64 and of 1,024, long rows of output_csr() in pieces. The reversed relation
  /// has the same arrays.
  const OffsetEdges& offset_edges() const;
  const EdgeParts& edge_tiles() const;
  const EdgeParts& edge_parts() const;
  const std::vector<SegmentPieces>& output_pieces() const;
  /// @endcond
  /// Whether every output row has exactly one edge.
  bool has_one_edge_per_output() const;
  /// How many rows have no edge.
  Coverage coverage() const;

  /// Bytes that are held now, including those of the views that exist.
  size_t nbytes() const;
  /// A description in one line.
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
  bool is_identity_ = false;
  bool given_edges_ = false;  ///< made by from_edges: the edge arrays keep the user's order
  std::unique_ptr<Views> views_;
};

/// @cond internal
/// Functions that make the views which the rows of a convolution on a GPU read first
/// (routes/conv_rows.cpp). `gradients`: also those of its two gradients. Kernels of more than 32
/// offsets, such as that of a first layer, whose input needs no gradient, get no reversed views.
std::vector<std::function<void()>> views_for_gpu(const Relation::Ptr& relation, bool gradients);

/// The checks of relate(): target given where it must be, dtypes, the specification of the kind.
void check_relate(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                  const std::optional<CoordinateSet>& target, std::string_view operation);
/// relate() after the checks.
Relation::Fresh relate_checked(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                               const std::optional<CoordinateSet>& target,
                               std::string_view operation);
/// @endcond

/// Builds a relation from coordinates, as docs/ops/relations.md defines the kinds.
/// `target` is given for the two target kinds only. Throws std::invalid_argument,
/// std::overflow_error; the message begins with `operation`.
LATTICE_API Relation::Fresh relate(RelationKind kind, const CoordinateSet& in,
                                   const KernelSpec& spec,
                                   const std::optional<CoordinateSet>& target,
                                   std::string_view operation);

}  // namespace lattice
