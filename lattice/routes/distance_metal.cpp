// distance on Metal: kernels/metal/distance.metal.
#include <mlx/ops.h>

#include <limits>

#include "lattice/graph/gpu_call.h"
#include "lattice/kernels/metal/text.h"
#include "lattice/routes/distance.h"

namespace lattice {
namespace {

constexpr int kSide = 16;  // of a tile in distance.metal

constexpr int kMostRows = std::numeric_limits<int>::max() / kSide * kSide;

}  // namespace

Rejection needs_whole_tiles(const Call& call) {
  for (const mx::array& a : call.inputs)
    if (a.shape(0) > kMostRows)
      return {Rejection::Step::shape,
              std::to_string(a.shape(0)) + " rows: MLX launches fewer than 2^31 threads"};
  return needs_gpu_kernels(call);
}

mx::array distance_with_metal(const Call& call) {
  const Distance kind = call.get<Pairs>().metric;
  const mx::array &a = call.inputs[0], &b = call.inputs[1];
  const int n = a.shape(0), m = b.shape(0);
  if (n == 0 || m == 0 || call.c_in == 0)
    return mx::full({n, m}, kind == Distance::cosine ? 1.0f : 0.0f, mx::float32, call.stream);
  const std::string metric = kind == Distance::cosine      ? "kCosine"
                             : kind == Distance::euclidean ? "kEuclidean"
                                                           : "kSquared";
  const auto whole = [](int rows) { return (rows + kSide - 1) / kSide * kSide; };
  graph::GpuCall launch;
  launch.name = std::string("distance_") + name(kind);
  launch.header = metal::text("distance");
  launch.shared = {{"float", "left", "lattice::kSide * lattice::kPitch"},
                   {"float", "right", "lattice::kSide * lattice::kPitch"}};
  launch.source =
      "lattice::distance_tile<lattice::" + metric +
      ">(d, a, a_shape[0], b, b_shape[0], a_shape[1], left, right, thread_position_in_grid.xy, "
      "thread_position_in_threadgroup.xy);";
  launch.input_names = {"a", "b"};
  launch.output_names = {"d"};
  launch.outputs = {{{n, m}, mx::float32}};
  launch.grid = {whole(m), whole(n), 1};
  launch.threadgroup = {kSide, kSide, 1};
  return graph::gpu_call(launch, {a, b}, call.stream)[0];
}

}  // namespace lattice
