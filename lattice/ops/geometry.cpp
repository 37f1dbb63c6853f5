#include "lattice/ops/geometry.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/geometry.h"

namespace lattice {
namespace {

using cpu::Buffer;

// Rows that a kind makes, in the order of core: distinct floor(in / stride), or distinct in *
// stride + offset - padding. The row of the table has checked that they fit int32.
mx::array made_coords(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                      mx::StreamOrDevice s) {
  const int64_t n = in.rows(), k = offsets_start_at_zero(kind) ? spec.volume() : 1;
  Buffer<int32_t> rows(n * k * 4);
  if (!offsets_start_at_zero(kind)) {
    cpu::floor_coords(in.span(), spec.stride, rows.data());
  } else {
    const std::vector<Triple> offsets = kernel_offsets(spec.size, spec.dilation, false);
    for (int64_t i = 0; i < n * k; ++i) {
      rows[i * 4] = static_cast<int32_t>(in.span().at(i / k, 0));
      for (size_t a = 0; a < 3; ++a)
        rows[i * 4 + 1 + static_cast<int64_t>(a)] =
            static_cast<int32_t>(in.span().at(i / k, static_cast<int>(a) + 1) * spec.stride[a] +
                                 offsets[static_cast<size_t>(i % k)][a] - spec.padding[a]);
    }
  }
  return distinct_coords(adopt(std::move(rows), {static_cast<int>(n * k), 4}), s);
}

}  // namespace

Call geometry_call(Operation operation, std::vector<mx::array> inputs, Geometry geometry,
                   mx::StreamOrDevice s) {
  return {.operation = operation, .inputs = std::move(inputs), .payload = geometry, .stream = s};
}

std::optional<mx::array> run_off_host(const Call& call) {
  const Route& route = *choose(call).chosen;
  if (route.code == Code::host) {
    route.count_run();
    return std::nullopt;
  }
  mx::array result = route.launch(call, route)[0];
  result.eval();
  return result;
}

mx::array distinct_coords(const mx::array& coords, mx::StreamOrDevice s) {
  const bool is64 = coords.dtype() == mx::int64;
  const int64_t n = coords.shape(0);
  const cpu::CoordSpan span{n ? coords.data<void>() : nullptr, n, is64};
  Buffer<int32_t> first;
  if (const auto found = run_off_host(geometry_call(Operation::unique, {coords}, {}, s))) {
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
          run_off_host(geometry_call(Operation::lookup, {coords.array(), queries.array()}, {}, s)))
    return *found;
  return adopt(cpu::lookup(*coords.index(), *queries.index()));
}

Relation::Fresh relate_on(RelationKind kind, const CoordinateSet& in, const KernelSpec& spec,
                          const std::optional<CoordinateSet>& target, std::string_view operation,
                          mx::StreamOrDevice s) {
  check_relate(kind, in, spec, target, operation);
  const bool same = spec.stride == Triple{1, 1, 1} && spec.padding == Triple{0, 0, 0} &&
                    !offsets_start_at_zero(kind);
  Call call =
      geometry_call(Operation::relate, {in.array(), (target ? *target : in).array()},
                    {.kind = kind, .spec = spec, .has_target = target.has_value() || same}, s);
  const Route& route = *choose(call).chosen;
  if (route.code == Code::host) {
    route.count_run();
    return relate(kind, in, spec, target, operation);
  }
  const mx::array first = find_coords(in, in, s);
  for (int64_t r = 0; r < in.rows(); ++r)
    if (first.data<int32_t>()[r] != r) in.unique_index(operation);  // throws
  CoordinateSet out = target ? *target : in;
  if (!target && !same) out = CoordinateSet(made_coords(kind, in, spec, s), operation);
  call.inputs[1] = out.array();
  mx::array map = route.launch(call, route)[0];
  const int n = map.shape(0), n_k = static_cast<int>(spec.volume());
  mx::array rows = mx::contiguous(mx::slice(map, {0, 0}, {n, n_k}, s), false, s);
  mx::array masks = mx::contiguous(mx::slice(map, {0, n_k}, {n, map.shape(1)}, s), false, s);
  masks = mx::view(masks, mx::uint32, s);
  mx::eval(rows, masks);
  return Relation::from_map(kind, spec, in.rows(), {rows, masks}, std::move(out));
}

}  // namespace lattice
