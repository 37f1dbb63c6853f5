#include "lattice/ops/geometry_routes.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/core/neighbors.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/ops/geometry_metal.h"

namespace lattice {
namespace {

using cpu::Buffer;

constexpr std::string_view kName = "geometry";

Rejection always(const Call&) { return {}; }

mx::array column(Buffer<int32_t>&& rows) {
  const int n = static_cast<int>(rows.size());
  return adopt(std::move(rows), {n});
}

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
  return column(cpu::lookup(*coords.index(), *queries.index()));
}

mx::array relate_on_cpu(const Call& call) {
  const RelationKind kind = offsets_start_at_zero(call.geometry->kind)
                                ? RelationKind::target_transposed
                                : RelationKind::target;
  const CoordinateSet in(call.inputs[0], kName), out(call.inputs[1], kName);
  const Relation::Ptr relation = relate(kind, in, call.geometry->spec, out, kName);
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
    rows[i] = call.geometry->points
                  ? mx::view(mx::contiguous(part(given, 1, 4), false, s), mx::float32, s)
                  : given;
    if (call.geometry->points) batches[i] = mx::reshape(part(given, 0, 1), {-1}, s);
  }
  const NeighborIndex index(*rows[0], batches[0]);
  const cpu::NeighborQuery query{call.geometry->limit, call.geometry->reach};
  const NeighborRelation::Ptr found = index.search(query, query.limit, rows[1], batches[1], kName);
  const auto low = static_cast<int32_t>(found->truncated() & ((1 << 30) - 1));
  const mx::array truncated({low, static_cast<int32_t>(found->truncated() >> 30)}, {2}, mx::int32);
  return mx::concatenate({truncated, found->row_offsets(), found->source_rows(),
                          mx::view(found->distances(), mx::int32, s)},
                         s);
}

// Rows that a kind makes, in the order of core: distinct floor(in / stride), or distinct in *
// stride + offset - padding. Nothing: they leave int32 or are too many.
std::optional<mx::array> made_coords(RelationKind kind, const CoordinateSet& in,
                                     const KernelSpec& spec, mx::StreamOrDevice s) {
  const int64_t n = in.rows(), k = offsets_start_at_zero(kind) ? spec.volume() : 1;
  if (n * k >= 1 << 29) return std::nullopt;
  Buffer<int32_t> rows(n * k * 4);
  if (!offsets_start_at_zero(kind)) {
    cpu::floor_coords(in.span(), spec.stride, rows.data());
  } else {
    const std::vector<Triple> offsets = kernel_offsets(spec.size, spec.dilation, false);
    for (int64_t i = 0; i < n * k; ++i) {
      rows[i * 4] = static_cast<int32_t>(in.span().at(i / k, 0));
      for (size_t a = 0; a < 3; ++a) {
        const int64_t at = in.span().at(i / k, static_cast<int>(a) + 1) * spec.stride[a] +
                           offsets[static_cast<size_t>(i % k)][a] - spec.padding[a];
        const auto kept = static_cast<int32_t>(at);
        if (kept != at) return std::nullopt;
        rows[i * 4 + 1 + static_cast<int64_t>(a)] = kept;
      }
    }
  }
  return distinct_coords(adopt(std::move(rows), {static_cast<int>(n * k), 4}), s);
}

}  // namespace

Call geometry_call(const char* operation, std::vector<mx::array> inputs, Geometry geometry,
                   mx::StreamOrDevice s) {
  Call call;
  call.operation = operation;
  call.inputs = std::move(inputs);
  call.geometry = std::move(geometry);
  call.stream = s;
  return call;
}

std::optional<mx::array> run_on_metal(const Call& call) {
  const Decision decision = choose(call);
  if (!decision.chosen->name.starts_with("metal.")) return std::nullopt;
  mx::array result = decision.chosen->launch(call);
  result.eval();
  return result;
}

mx::array distinct_coords(const mx::array& coords, mx::StreamOrDevice s) {
  const bool is64 = coords.dtype() == mx::int64;
  const int64_t n = coords.shape(0);
  const cpu::CoordSpan span{n ? coords.data<void>() : nullptr, n, is64};
  Buffer<int32_t> first;
  if (const auto found = run_on_metal(geometry_call("unique", {coords}, {}, s))) {
    first = Buffer<int32_t>(n);
    const int32_t* rows = n ? found->data<int32_t>() + n : nullptr;
    int64_t kept = 0;
    while (kept < n && rows[kept] >= 0) ++kept;
    std::copy_n(rows, kept, first.begin());
    first.shrink(kept);
  } else {
    first = cpu::distinct_rows(cpu::index_coords(span)).first;
  }
  Buffer<std::byte> out(first.size() * (is64 ? 32 : 16));
  cpu::take_rows(span, first.span(), out.data());
  return adopt(std::move(out), {static_cast<int>(first.size()), 4}, coords.dtype());
}

mx::array find_coords(const CoordinateSet& coords, const CoordinateSet& queries,
                      mx::StreamOrDevice s) {
  if (const auto found =
          run_on_metal(geometry_call("lookup", {coords.array(), queries.array()}, {}, s)))
    return *found;
  return column(cpu::lookup(*coords.index(), *queries.index()));
}

Relation::Ptr relate_on(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                        const std::optional<CoordinateSet>& target, std::string_view operation,
                        mx::StreamOrDevice s) {
  check_relate(kind, in, spec, target, operation);
  Call call =
      geometry_call("relate", {in.array(), (target ? *target : in).array()}, {kind, spec}, s);
  const Decision decision = choose(call);
  if (!decision.chosen->name.starts_with("metal."))
    return relate(kind, in, spec, target, operation);
  const mx::array first = find_coords(in, in, s);
  for (int64_t r = 0; r < in.rows(); ++r)
    if (first.data<int32_t>()[r] != r) in.unique_index(operation);  // throws
  CoordinateSet out = target ? *target : in;
  const bool same = spec.stride == Triple{1, 1, 1} && spec.padding == Triple{0, 0, 0} &&
                    !offsets_start_at_zero(kind);
  if (!target && !same) {
    const auto made = made_coords(kind, in, spec, s);
    if (!made) return relate(kind, in, spec, target, operation);
    out = CoordinateSet(*made, operation);
  }
  call.inputs[1] = out.array();
  if (const Rejection why = needs_map_by_hash(call); !why.fits())
    return relate(kind, in, spec, target, operation);
  mx::array map = decision.chosen->launch(call);
  const int n = map.shape(0), n_k = static_cast<int>(spec.volume());
  mx::array rows = mx::contiguous(mx::slice(map, {0, 0}, {n, n_k}, s), false, s);
  mx::array masks = mx::contiguous(mx::slice(map, {0, n_k}, {n, map.shape(1)}, s), false, s);
  masks = mx::view(masks, mx::uint32, s);
  mx::eval(rows, masks);
  return Relation::from_map(kind, spec, in.rows(), {rows, masks}, std::move(out));
}

void add_geometry_routes(std::vector<Route>& rows) {
  const auto cpu = mx::Device::cpu, gpu = mx::Device::gpu;
  const std::string shared =
      "always, and the default: the CPU's code in shared memory; its result is needed there";
  const std::string forced = ". On request: nobody has timed it";
  const auto add = [&](const char* operation, const char* on_cpu, const char* words, auto plain,
                       const char* on_metal, const std::string& metal_words, auto check,
                       auto kernel) {
    rows.push_back({operation, cpu, on_cpu, words, always, plain});
    rows.push_back({operation, gpu, "cpu.unified", shared, always, plain});
    rows.push_back({operation, gpu, on_metal, metal_words + forced, check, kernel});
  };
  add("unique", "cpu.sorted", "any coordinates: sorted keys", unique_on_cpu, "metal.hash",
      "int32 coordinates: a table, then a prefix sum", needs_hash, unique_with_metal);
  add("lookup", "cpu.sorted", "any coordinates: sorted keys, merged", lookup_on_cpu, "metal.hash",
      "int32 coordinates: a table", needs_hash, lookup_with_metal);
  add("relate", "cpu.sorted", "any coordinates: sorted keys, walked once for each (x, y) offset",
      relate_on_cpu, "metal.hash",
      "int32 coordinates: a table, probed for each output row and offset", needs_map_by_hash,
      relate_with_metal);
  add("neighbors", "cpu.tree", "any rows: k-d trees of both ends", neighbors_on_cpu, "metal.brute",
      "float points or int32 coordinates: every query against every source", needs_hash,
      neighbors_with_metal);
}

}  // namespace lattice
