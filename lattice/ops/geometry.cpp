#include "lattice/ops/geometry.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/geometry.h"

namespace lattice {
namespace {

using cpu::Buffer;

mx::array column(Buffer<int32_t>&& rows) {
  const int n = static_cast<int>(rows.size());
  return adopt(std::move(rows), {n});
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
  if (!std::string_view(decision.chosen->name).starts_with("metal.")) return std::nullopt;
  mx::array result = decision.chosen->launch(call, *decision.chosen)[0];
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
  if (!std::string_view(decision.chosen->name).starts_with("metal."))
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
  mx::array map = decision.chosen->launch(call, *decision.chosen)[0];
  const int n = map.shape(0), n_k = static_cast<int>(spec.volume());
  mx::array rows = mx::contiguous(mx::slice(map, {0, 0}, {n, n_k}, s), false, s);
  mx::array masks = mx::contiguous(mx::slice(map, {0, n_k}, {n, map.shape(1)}, s), false, s);
  masks = mx::view(masks, mx::uint32, s);
  mx::eval(rows, masks);
  return Relation::from_map(kind, spec, in.rows(), {rows, masks}, std::move(out));
}

}  // namespace lattice
