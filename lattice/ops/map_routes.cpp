#include "lattice/ops/map_routes.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cmath>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/dtype.h"
#include "lattice/ops/segments_metal.h"

namespace lattice {
namespace {

Rejection always(const Call&) { return {}; }

using Kernel = void (*)(const RowMap&, const cpu::RowArray&, void*);

mx::array node(const Call& call, const char* route, Kernel kernel) {
  return graph::cpu_call(
      "map_rows." + std::string(route),
      std::to_string(reinterpret_cast<std::uintptr_t>(call.map.get())),
      {graph::row_contiguous(call.inputs[0], call.stream)},
      {{{static_cast<int>(call.n_out()), static_cast<int>(call.c_out)}, call.dtype}},
      [kernel, map = call.map, name = std::string(route)](std::span<const graph::Input> in,
                                                          std::span<const graph::Output> out) {
        count_run("map_rows", name);
        kernel(*map, {float_type_of(in[0].dtype), in[0].data, in[0].shape[0], in[0].shape[1]},
               out[0].data);
      },
      call.stream)[0];
}

void reduce(const RowMap& map, const cpu::RowArray& x, void* out) {
  if (!map.offsets()) return cpu::gather_rows(x, map.rows(), map.n_out(), 0.0f, out);
  cpu::reduce_segments({map.n_out(), map.offsets(), map.rows(), nullptr, map.weights()}, x,
                       map.reduction(), out);
}

// One element at a time, sums in float64.
void reference(const RowMap& map, const cpu::RowArray& x, void* out) {
  cpu::visit_float_type(x.storage, [&]<typename T>(T) {
    for (int64_t o = 0; o < map.n_out(); ++o)
      for (int64_t c = 0; c < x.channels; ++c) {
        const int64_t from = map.offsets() ? map.offsets()[o] : o,
                      to = map.offsets() ? map.offsets()[o + 1] : o + 1;
        double value = map.reduction() == Reduction::max && from < to ? -INFINITY : 0;
        for (int64_t e = from; e < to; ++e) {
          if (map.rows()[e] < 0) {
            value = 0;
            continue;
          }
          const double v =
              double{cpu::widen(static_cast<const T*>(x.x)[map.rows()[e] * x.channels + c])} *
              double{map.weights() ? map.weights()[e] : 1.0f};
          if (map.reduction() != Reduction::max)
            value += v;
          else if (!(v <= value) && !std::isnan(value))
            value = v;
        }
        if (map.reduction() == Reduction::mean && from < to)
          value /= static_cast<double>(to - from);
        static_cast<T*>(out)[o * x.channels + c] = cpu::narrow<T>(static_cast<float>(value));
      }
  });
}

mx::array with_metal(const Call& call) {
  const RowMap::Parts& parts = call.map->parts();
  if (!parts.offsets) return metal_gather(call.inputs[0], parts.rows, 0, call.stream);
  const char* mode = call.map->reduction() == Reduction::max    ? "max"
                     : call.map->reduction() == Reduction::mean ? "mean"
                                                                : "sum";
  return metal_reduce(call.inputs[0], {*parts.offsets, parts.rows, parts.weights}, mode, call.dtype,
                      call.stream);
}

mx::array with_mlx(const Call& call) {
  const mx::StreamOrDevice s = call.stream;
  const RowMap& map = *call.map;
  const int n = static_cast<int>(call.n_out()), c = static_cast<int>(call.c_out);
  const int entries = static_cast<int>(map.n_entries());
  if (entries == 0 || c == 0 || call.n_in() == 0) return mx::zeros({n, c}, call.dtype, s);
  const mx::array rows = map.parts().rows;
  mx::array values = mx::take(mx::astype(call.inputs[0], mx::float32, s),
                              mx::maximum(rows, mx::array(0), s), 0, s);
  const mx::array missing = mx::expand_dims(mx::less(rows, mx::array(0), s), 1, s);
  values = mx::where(missing, mx::array(0.0f), values, s);
  if (map.parts().weights)
    values = mx::multiply(values, mx::expand_dims(*map.parts().weights, 1, s), s);
  const mx::array owners = map.entry_rows(), updates = mx::reshape(values, {entries, 1, c}, s);
  const bool max = map.reduction() == Reduction::max;
  mx::array out = mx::full({n, c}, max ? -INFINITY : 0.0f, mx::float32, s);
  out = max ? mx::scatter_max(out, {owners}, updates, {0}, s)
            : mx::scatter_add(out, {owners}, updates, {0}, s);
  if (map.reduction() != Reduction::sum) {
    mx::array counts = mx::scatter_add(mx::zeros({n}, mx::float32, s), {owners},
                                       mx::ones({entries, 1}, mx::float32, s), {0}, s);
    counts = mx::expand_dims(counts, 1, s);
    out = max ? mx::where(mx::equal(counts, mx::array(0.0f), s), mx::array(0.0f), out, s)
              : mx::divide(out, mx::maximum(counts, mx::array(1.0f), s), s);
  }
  return mx::astype(out, call.dtype, s);
}

RowMap::Ptr random_map(Random& random, int64_t n_in, int64_t n_out, Reduction reduction,
                       bool weighted, bool once) {
  cpu::Buffer<int32_t> offsets(n_out + 1);
  std::vector<int32_t> rows;
  std::vector<float> weights;
  for (int64_t o = 0; o < n_out; ++o) {
    offsets[o] = static_cast<int32_t>(rows.size());
    const int64_t size = once ? 3 : o == 5 ? 60 : random.below(5);
    for (int64_t e = 0; e < size; ++e) {
      const int next = static_cast<int>(rows.size());
      if (once && next >= n_in) break;
      rows.push_back(once ? static_cast<int32_t>(n_in - 1 - next)
                          : static_cast<int32_t>(random.below(n_in)));
      weights.push_back(random.real());
    }
  }
  offsets[n_out] = static_cast<int32_t>(rows.size());
  const int n = static_cast<int>(rows.size());
  RowMap::Parts parts{n_in,
                      n_out,
                      mx::array(rows.data(), {n}, mx::int32),
                      adopt(std::move(offsets), {static_cast<int>(n_out) + 1}),
                      std::nullopt,
                      reduction};
  if (weighted) parts.weights = mx::array(weights.data(), {n}, mx::float32);
  return RowMap::make(std::move(parts));
}

OracleCase map_case(Random& random, const RowMap::Ptr& map, int64_t channels, mx::Dtype dtype,
                    const std::string& label) {
  const Values x =
      random_values(random, {static_cast<int>(map->n_in()), static_cast<int>(channels)}, dtype);
  OracleCase test;
  test.label = label + " " + std::to_string(channels) + " channels " + graph::dtype_name(dtype);
  test.call.operation = "map_rows";
  test.call.inputs = {x.array};
  test.call.map = map;
  test.call.c_in = test.call.c_out = channels;
  test.call.dtype = dtype;
  test.expected.assign(static_cast<size_t>(map->n_out() * channels), 0.0);
  test.magnitude = test.expected;
  for (int64_t o = 0; o < map->n_out(); ++o) {
    const int64_t from = map->offsets() ? map->offsets()[o] : o,
                  to = map->offsets() ? map->offsets()[o + 1] : o + 1;
    for (int64_t c = 0; c < channels; ++c) {
      double& sum = test.expected[static_cast<size_t>(o * channels + c)];
      double& size = test.magnitude[static_cast<size_t>(o * channels + c)];
      for (int64_t e = from; e < to; ++e) {
        if (map->rows()[e] < 0) continue;
        const double term = x.exact[static_cast<size_t>(map->rows()[e] * channels + c)] *
                            double{map->weights() ? map->weights()[e] : 1.0f};
        sum = map->reduction() != Reduction::max ? sum + term
              : e == from                        ? term
                                                 : std::max(sum, term);
        size += std::fabs(term);
      }
      if (map->reduction() == Reduction::mean && to > from) sum /= static_cast<double>(to - from);
    }
  }
  return test;
}

}  // namespace

void add_map_routes(std::vector<Route>& rows) {
  rows.push_back({"map_rows", mx::Device::cpu, "cpu.segments",
                  "any map: runs of rows in vector registers, long rows in pieces", always,
                  [](const Call& call) { return node(call, "cpu.segments", reduce); }});
  rows.push_back({"map_rows", mx::Device::cpu, "cpu.reference",
                  "any map: one element at a time, sums in float64", always,
                  [](const Call& call) { return node(call, "cpu.reference", reference); }});
  rows.push_back({"map_rows", mx::Device::gpu, "metal.rows",
                  "any map: a thread per value, long rows in pieces", needs_metal, with_metal});
  rows.push_back({"map_rows", mx::Device::gpu, "gpu.mlx",
                  "any map: take and scatter of MLX, in float32", always, with_mlx});
}

void add_map_cases(std::vector<OracleCase>& cases) {
  Random random{7};
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int64_t channels : {1, 4, 7, 33, 64}) {
      const auto add = [&](const RowMap::Ptr& map, const char* label) {
        cases.push_back(map_case(random, map, channels, dtype, label));
      };
      add(random_map(random, 50, 40, Reduction::sum, false, false), "sum");
      add(random_map(random, 50, 40, Reduction::sum, true, false), "weighted sum");
      add(random_map(random, 50, 40, Reduction::mean, false, false), "mean");
      add(random_map(random, 50, 40, Reduction::max, false, true), "max");
      add(random_map(random, 50, 40, Reduction::mean, false, false)->transposed(),
          "transposed mean");
      const int32_t rows[] = {3, -1, 0, 3, 7};
      add(RowMap::make({8, 5, mx::array(rows, {5}, mx::int32), std::nullopt, std::nullopt}),
          "rows");
      add(random_map(random, 3, 0, Reduction::sum, true, false), "empty");
    }
}

}  // namespace lattice
