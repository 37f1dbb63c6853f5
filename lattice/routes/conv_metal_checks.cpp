// Which calls the rows "metal.*" of conv, linear, outer and per_edge_* take: sizes, relation, unit.
#include <algorithm>
#include <limits>

#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"

namespace lattice {
namespace {

using Step = Rejection::Step;

constexpr int64_t kMostGroups = (int64_t{1} << 31) / 128 - 1;  // MLX counts threads in 32 bits

// Masks that rows are sorted by.
Rejection needs_short_mask(const Call& call) {
  const int64_t n_k = call.relation->n_kernels();
  if (n_k > 32)
    return {Step::relation, std::to_string(n_k) + " offsets: a mask to sort by has 32 bits"};
  return needs_map(call);
}

}  // namespace

Rejection needs_few_groups(const Call& call) {
  // Of each kernel the most: tiles of rows, parts of the edges of an offset.
  const int64_t n_k = call.relation->n_kernels();
  const int64_t groups = std::max(call.n_out() / kTileEdges, call.n_edges() / kPartEdges) + n_k + 1;
  if (groups > kMostGroups)
    return {Step::shape, std::to_string(groups) +
                             " groups of 128 threads: MLX launches fewer than 2^31 threads"};
  return {};
}

Rejection needs_tiles(const Call& call) {
  if (in_group(call) < 8 || out_group(call) < 8)
    return {Step::shape, "a group has " + std::to_string(in_group(call)) + " -> " +
                             std::to_string(out_group(call)) + " channels, a matrix unit takes 8"};
  return needs_few_groups(call);
}

Rejection needs_tensor_unit(const Call& call) {
  if (tensor_ops() != TensorOps::neural_accelerator)
    return {Step::capability, std::string("the tier is ") + name(tensor_ops()) +
                                  ": only a neural accelerator multiplies faster this way"};
  if (call.dtype == mx::float32)
    return {Step::storage, "float32: the tensor unit would round to fewer bits"};
  if (in_group(call) < 16 || out_group(call) < 16)
    return {Step::shape, "a group has " + std::to_string(in_group(call)) + " -> " +
                             std::to_string(out_group(call)) +
                             " channels, the tensor unit takes 16"};
  return {};
}

Rejection needs_map(const Call& call) {
  const Relation& r = *call.relation;
  if (r.kind() == RelationKind::custom)
    return {Step::relation, "custom edges may have two of one offset in a row; the map holds one"};
  if (r.n_out() * r.n_kernels() > std::numeric_limits<int32_t>::max())
    return {Step::relation, "rows times offsets exceed the 2^31 - 1 entries of a map"};
  return {};
}

Rejection needs_one_edge(const Call& call) {
  // First what costs nothing: the question below counts the edges of every row.
  const Rejection few = needs_few_groups(call);
  if (!few.fits()) return few;
  if (!call.relation->has_one_edge_per_output())
    return {Step::relation, "some output row has no edge or several"};
  return {};
}

Rejection needs_full_tiles(const Call& call) {
  const Relation& r = *call.relation;
  const int64_t lists = (r.n_out() + kTileEdges - 1) / kTileEdges * r.n_kernels();
  if (lists > 4 * r.edge_count() + 4096)
    return {Step::relation, std::to_string(lists) + " lists of a tile and an offset for " +
                                std::to_string(r.edge_count()) + " edges: most would be empty"};
  return {};
}

Rejection needs_sorted_map(const Call& call) {
  const Relation& r = *call.relation;
  const bool kind = r.kind() == RelationKind::forward || r.kind() == RelationKind::target ||
                    r.kind() == RelationKind::submanifold;
  if (!kind || r.is_reversed())
    return {Step::relation,
            std::string(r.is_reversed() ? "reversed " : "") + kind_name(r.kind()) +
                " relation: only forward, target and submanifold rows are sorted by mask"};
  return needs_short_mask(call);
}

Rejection needs_mirror(const Call& call) {
  if (call.relation->kind() != RelationKind::submanifold || !call.relation->is_reversed())
    return {Step::relation, "not a reversed submanifold relation: no mirror image"};
  return needs_short_mask(call);
}

}  // namespace lattice
