// distance on Metal: kernels/metal/distance.metal.
#include <mlx/ops.h>

#include "lattice/kernels/portable/distance_sizes.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/kernel_call.h"

namespace lattice::routes {
mx::array distance_with_metal(const DistanceAsked& asked) {
  const auto& [a, b, kind, stream] = asked;
  const int n = a.shape(0), m = b.shape(0), channels = a.shape(1);
  if (n == 0 || m == 0 || channels == 0)
    return mx::full({n, m}, kind == Distance::cosine ? 1.0f : 0.0f, mx::float32, stream);
  const std::string metric = kind == Distance::cosine      ? "kCosine"
                             : kind == Distance::euclidean ? "kEuclidean"
                                                           : "kSquared";
  const auto whole = [](int rows) {
    return (rows + kDistanceTile - 1) / kDistanceTile * kDistanceTile;
  };
  KernelCall kernel(std::string("distance_") + name(kind), "distance");
  kernel.add("a", a), kernel.add("b", b);
  kernel.add_output("d", {{n, m}, mx::float32});
  kernel.add_sizes("DistanceSizes", DistanceSizes{.n = n, .m = m, .channels = channels});
  kernel.call.shared = {{"float", "left", "lattice::kSide * lattice::kPitch"},
                        {"float", "right", "lattice::kSide * lattice::kPitch"}};
  kernel.enter("distance_tile<lattice::" + metric + ">",
               "d, a, b, sizes, lattice::DistanceMemory{left, right}, thread_position_in_grid.xy, "
               "thread_position_in_threadgroup.xy");
  kernel.call.grid = {whole(m), whole(n), 1};
  kernel.call.threadgroup = {kDistanceTile, kDistanceTile, 1};
  return kernel.run(stream)[0];
}

}  // namespace lattice::routes
