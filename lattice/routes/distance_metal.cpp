// distance on Metal: kernels/metal/distance.metal.
#include <mlx/ops.h>

#include <limits>

#include "lattice/kernels/portable/distance_sizes.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/kernel_call.h"

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
  KernelCall kernel(std::string("distance_") + name(kind), "distance");
  kernel.add("a", a), kernel.add("b", b);
  kernel.add_output("d", {{n, m}, mx::float32});
  kernel.add_sizes("DistanceSizes",
                   DistanceSizes{.n = n, .m = m, .channels = static_cast<int>(call.c_in)});
  kernel.call.shared = {{"float", "left", "lattice::kSide * lattice::kPitch"},
                        {"float", "right", "lattice::kSide * lattice::kPitch"}};
  kernel.enter("distance_tile<lattice::" + metric + ">",
               "d, a, b, sizes, lattice::DistanceMemory{left, right}, thread_position_in_grid.xy, "
               "thread_position_in_threadgroup.xy");
  kernel.call.grid = {whole(m), whole(n), 1};
  kernel.call.threadgroup = {kSide, kSide, 1};
  return kernel.run(call.stream)[0];
}

}  // namespace lattice
