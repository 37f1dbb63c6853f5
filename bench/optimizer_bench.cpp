// AdamW on 3 million parameters: best CPU ms of one step, fused and as MLX operations, and times a
// memory copy of the array.
#include <mlx/mlx.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/optimizer.h"

using namespace lattice;

int main() {
  mx::set_cache_limit(size_t{4} << 30);
  mx::set_default_device(mx::Device::cpu);
  cpu::set_thread_count(1);
  const int n = 3000000;
  mx::array p = mx::random::normal({n}), g = mx::random::normal({n}), m = mx::zeros({n}),
            v = mx::ones({n});
  mx::array rates = mx::array({0.99f, 1e-3f, 1.0f});
  mx::eval({p, g, m, v, rates});
  std::vector<float> copy(static_cast<size_t>(n));
  const double unit =
      bench::best(7, [&] { std::memcpy(copy.data(), p.data<float>(), copy.size() * 4); });
  const auto line = [&](const char* name, const std::function<std::vector<mx::array>()>& f) {
    const double seconds = bench::best(7, [&] { mx::eval(f()); });
    std::printf("%-22s %8.2f ms %6.1f copies\n", name, seconds * 1e3, seconds / unit);
  };
  line("adamw_step", [&] { return adamw_step(p, g, m, v, rates); });
  line("adamw plain MLX", [&] {
    const mx::array m2 = mx::array(0.9f) * m + mx::array(0.1f) * g;
    const mx::array v2 = mx::array(0.999f) * v + mx::array(0.001f) * mx::square(g);
    return std::vector{
        mx::array(0.99f) * p - mx::array(1e-3f) * m2 / (mx::sqrt(v2) + mx::array(1e-8f)), m2, v2};
  });
}
