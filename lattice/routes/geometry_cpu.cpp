// unique, lookup, relate and neighbors on the CPU.
#include <mlx/ops.h>

#include "lattice/core/neighbors.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/routes/geometry.h"

namespace lattice {
namespace {

using cpu::Buffer;

constexpr std::string_view kName = "geometry";

}  // namespace

mx::array unique_on_cpu(const Call& call) {
  const cpu::Distinct distinct = cpu::distinct_rows(*CoordinateSet(call.inputs[0], kName).index());
  const int64_t n = distinct.inverse.size();
  Buffer<int32_t> both(2 * n);
  std::copy(distinct.inverse.begin(), distinct.inverse.end(), both.begin());
  std::fill(std::copy(distinct.first.begin(), distinct.first.end(), both.begin() + n), both.end(),
            -1);
  return adopt(std::move(both), {2, static_cast<int>(n)});
}

mx::array lookup_on_cpu(const Call& call) {
  const CoordinateSet coords(call.inputs[0], kName), queries(call.inputs[1], kName);
  return adopt(cpu::lookup(*coords.index(), *queries.index()));
}

mx::array relate_on_cpu(const Call& call) {
  const RelationKind kind = offsets_start_at_zero(call.geometry().kind)
                                ? RelationKind::target_transposed
                                : RelationKind::target;
  const CoordinateSet in(call.inputs[0], kName), out(call.inputs[1], kName);
  const Relation::Ptr relation = relate(kind, in, call.geometry().spec, out, kName);
  const ImplicitGemm& map = relation->implicit_gemm();
  const mx::Device s = mx::Device::cpu;
  return mx::concatenate({map.out_in_map, mx::view(map.row_masks, mx::int32, s)}, 1, s);
}

mx::array neighbors_on_cpu(const Call& call) {
  const mx::Device s = mx::Device::cpu;
  const auto part = [&](const mx::array& rows, int from, int to) {
    return mx::slice(rows, {0, from}, {rows.shape(0), to}, s);
  };
  std::optional<mx::array> rows[2], batches[2];
  for (size_t i = 0; i < 2; ++i) {
    const mx::array& given = call.inputs[i];
    rows[i] = call.geometry().points
                  ? mx::view(mx::contiguous(part(given, 1, 4), false, s), mx::float32, s)
                  : given;
    if (call.geometry().points) batches[i] = mx::reshape(part(given, 0, 1), {-1}, s);
  }
  const NeighborIndex index(*rows[0], batches[0]);
  const cpu::NeighborQuery query{call.geometry().limit, call.geometry().reach};
  const NeighborRelation::Ptr found = index.search(query, query.limit, rows[1], batches[1], kName);
  const auto low = static_cast<int32_t>(found->truncated() & ((1 << 30) - 1));
  const mx::array truncated({low, static_cast<int32_t>(found->truncated() >> 30)}, {2}, mx::int32);
  return mx::concatenate({truncated, found->row_offsets(), found->source_rows(),
                          mx::view(found->distances(), mx::int32, s)},
                         s);
}

}  // namespace lattice
