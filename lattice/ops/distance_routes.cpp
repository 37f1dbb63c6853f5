#include "lattice/ops/distance_routes.h"

#include <mlx/ops.h>

#include <cmath>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/metal_call.h"
#include "lattice/kernels/cpu/features/distance.h"
#include "lattice/kernels/metal/text.h"

namespace lattice {
namespace {

constexpr int kSide = 16;  // of a tile in distance.metal
constexpr double kLeastScale = 1e-8;

Rejection always(const Call&) { return {}; }

// One distance in float64; `terms` receives the sum of what was added, each positive.
double exact(const auto& a, const auto& b, int64_t c, const std::string& mode,
             double* terms = nullptr) {
  double square = 0, dot = 0, aa = 0, bb = 0, absolute = 0;
  for (int64_t i = 0; i < c; ++i) {
    const double x = double{a[i]}, y = double{b[i]};
    square += (x - y) * (x - y);
    dot += x * y, absolute += std::fabs(x * y), aa += x * x, bb += y * y;
  }
  const double scale = std::max(std::sqrt(aa) * std::sqrt(bb), kLeastScale);
  const double d = mode == "cosine"      ? 1 - dot / scale
                   : mode == "euclidean" ? std::sqrt(square)
                                         : square;
  if (terms) *terms = mode == "cosine" ? 1 + absolute / scale : d;
  return d;
}

template <typename Kernel>
mx::array node(const Call& call, const char* route, Kernel kernel) {
  const auto &a = call.inputs[0], &b = call.inputs[1];
  return graph::cpu_call(
      call.operation + "." + route, call.mode,
      {graph::row_contiguous(a, call.stream), graph::row_contiguous(b, call.stream)},
      {{{a.shape(0), b.shape(0)}, mx::float32}},
      [kernel, mode = call.mode, name = std::string(route)](std::span<const graph::Input> in,
                                                            std::span<const graph::Output> out) {
        count_run("distance", name);
        kernel(in[0].template as<float>(), in[0].shape[0], in[1].template as<float>(),
               in[1].shape[0], in[0].shape[1], mode, out[0].template as<float>());
      },
      call.stream)[0];
}

mx::array distance_tiles(const Call& call) {
  return node(call, "cpu.tiles",
              [](const float* a, int64_t n, const float* b, int64_t m, int64_t c,
                 const std::string& mode, float* d) {
                const cpu::Distance kind = mode == "cosine"      ? cpu::Distance::cosine
                                           : mode == "euclidean" ? cpu::Distance::euclidean
                                                                 : cpu::Distance::squared;
                cpu::distance_matrix(a, n, b, m, c, kind, d);
              });
}

mx::array distance_reference(const Call& call) {
  return node(call, "cpu.reference",
              [](const float* a, int64_t n, const float* b, int64_t m, int64_t c,
                 const std::string& mode, float* d) {
                for (int64_t i = 0; i < n; ++i)
                  for (int64_t j = 0; j < m; ++j)
                    d[i * m + j] = static_cast<float>(exact(a + i * c, b + j * c, c, mode));
              });
}

mx::array distance_with_metal(const Call& call) {
  const mx::array &a = call.inputs[0], &b = call.inputs[1];
  const int n = a.shape(0), m = b.shape(0);
  if (n == 0 || m == 0 || call.c_in == 0)
    return mx::full({n, m}, call.mode == "cosine" ? 1.0f : 0.0f, mx::float32, call.stream);
  const std::string metric = call.mode == "cosine"      ? "kCosine"
                             : call.mode == "euclidean" ? "kEuclidean"
                                                        : "kSquared";
  const auto whole = [](int rows) { return (rows + kSide - 1) / kSide * kSide; };
  graph::MetalCall launch;
  launch.name = "distance_" + call.mode;
  launch.header = metal::text("distance");
  launch.source =
      "threadgroup float left[kSide * kPitch], right[kSide * kPitch];\ndistance_tile<" + metric +
      ">(d, a, a_shape[0], b, b_shape[0], a_shape[1], left, right, thread_position_in_grid.xy, "
      "thread_position_in_threadgroup.xy);";
  launch.input_names = {"a", "b"};
  launch.output_names = {"d"};
  launch.outputs = {{{n, m}, mx::float32}};
  launch.grid = {whole(m), whole(n), 1};
  launch.threadgroup = {kSide, kSide, 1};
  return graph::metal_call(launch, {a, b}, call.stream)[0];
}

// No (N, M, C) array either: the squares of one channel at a time.
mx::array distance_with_mlx(const Call& call) {
  const auto s = call.stream;
  const mx::array &a = call.inputs[0], &b = call.inputs[1];
  const mx::array bt = mx::transpose(b, s);
  if (call.mode == "cosine") {
    const auto norm = [s](const mx::array& v) {
      return mx::sqrt(mx::sum(mx::square(v, s), 1, true, s), s);
    };
    const mx::array scale = mx::maximum(mx::multiply(norm(a), mx::transpose(norm(b), s), s),
                                        mx::array(static_cast<float>(kLeastScale)), s);
    const mx::array dots =
        call.c_in ? mx::matmul(a, bt, s) : mx::zeros(scale.shape(), mx::float32, s);
    return mx::subtract(mx::array(1.0f), mx::divide(dots, scale, s), s);
  }
  mx::array d = mx::zeros({a.shape(0), b.shape(0)}, mx::float32, s);
  for (int c = 0; c < a.shape(1); ++c) {
    const mx::array x = mx::slice(a, {0, c}, {a.shape(0), c + 1}, s),
                    y = mx::slice(bt, {c, 0}, {c + 1, b.shape(0)}, s);
    d = mx::add(d, mx::square(mx::subtract(x, y, s), s), s);
  }
  return call.mode == "euclidean" ? mx::sqrt(d, s) : d;
}

}  // namespace

Call distance_call(const mx::array& a, const mx::array& b, const std::string& mode,
                   mx::StreamOrDevice s) {
  Call call;
  call.operation = "distance";
  call.inputs = {a, b};
  call.mode = mode;
  call.c_in = a.shape(1);
  call.c_out = 1;
  call.stream = s;
  return call;
}

void add_distance_routes(std::vector<Route>& rows) {
  rows.push_back({"distance", mx::Device::cpu, "cpu.tiles",
                  "any shape: blocks of rows of b side by side, sums in vector registers", always,
                  distance_tiles});
  rows.push_back({"distance", mx::Device::cpu, "cpu.reference",
                  "any shape: one pair at a time, sums in float64", always, distance_reference});
  rows.push_back({"distance", mx::Device::gpu, "metal.tiles",
                  "any shape: tiles of 16 x 16 pairs in threadgroup memory", needs_metal,
                  distance_with_metal});
  rows.push_back({"distance", mx::Device::gpu, "gpu.mlx",
                  "any shape: squares of one channel at a time; cosine: matmul of MLX", always,
                  distance_with_mlx});
}

void add_distance_cases(std::vector<OracleCase>& cases) {
  struct Sizes {
    int n, m, c;
  };
  Random random{13};
  for (const char* mode : {"euclidean", "squared_euclidean", "cosine"})
    for (const Sizes& z :
         {Sizes{0, 3, 2}, {3, 0, 2}, {2, 3, 0}, {1, 1, 1}, {7, 5, 3}, {65, 130, 3}, {9, 33, 20}}) {
      const Values a = random_values(random, {z.n, z.c}, mx::float32),
                   b = random_values(random, {z.m, z.c}, mx::float32);
      OracleCase test;
      test.call = distance_call(a.array, b.array, mode, {});
      for (int64_t i = 0; i < z.n; ++i)
        for (int64_t j = 0; j < z.m; ++j) {
          test.magnitude.push_back(0);
          test.expected.push_back(exact(a.exact.data() + i * z.c, b.exact.data() + j * z.c, z.c,
                                        mode, &test.magnitude.back()));
        }
      test.label = std::string(mode) + " " + std::to_string(z.n) + " x " + std::to_string(z.m) +
                   " of " + std::to_string(z.c) + " channels";
      cases.push_back(std::move(test));
    }
}

}  // namespace lattice
