// Normalization and activation of (172,802, 64) rows: best CPU ms of one evaluation, and times a
// memory copy of the array.
#include <mlx/mlx.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <vector>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/features.h"

using namespace lattice;

int main() {
  mx::set_cache_limit(size_t{4} << 30);
  mx::set_default_device(mx::Device::cpu);
  cpu::set_thread_count(1);
  const int n = 172802, c = 64;
  mx::array x = mx::random::normal({n, c}), w = mx::ones({c}), b = mx::zeros({c});
  mx::eval({x, w, b});
  std::vector<float> copy(static_cast<size_t>(n) * c);
  const double unit =
      bench::best(7, [&] { std::memcpy(copy.data(), x.data<float>(), copy.size() * 4); });
  const auto line = [&](const char* name, const std::function<mx::array()>& f) {
    const double seconds = bench::best(7, [&] { f().eval(); });
    std::printf("%-22s %8.2f ms %6.1f copies\n", name, seconds * 1e3, seconds / unit);
  };
  line("statistics", [&] { return feature_statistics(x).second; });
  line("batch_norm training", [&] { return batch_norm_features(x, {w, b}); });
  line("batch_norm inference", [&] { return batch_norm_features(x, {w, b}, b, w); });
  NormOptions act;
  act.residual = x;
  act.relu = true;
  line("  + residual and relu", [&] { return batch_norm_act(x, {w, b}, b, w, act).y; });
  line("  the same, separately", [&] {
    return activation(mx::add(batch_norm_features(x, {w, b}, b, w), x), Activation::relu);
  });
  line("batch_norm plain MLX", [&] {
    const mx::array m = mx::mean(x, 0), v = mx::var(x, 0);
    return mx::multiply(mx::subtract(x, m), mx::rsqrt(mx::add(v, mx::array(1e-5f))));
  });
  line("layer_norm", [&] { return layer_norm_features(x, {w, b}); });
  line("rms_norm", [&] { return rms_norm_features(x, w); });
  line("relu", [&] { return activation(x, Activation::relu); });
  line("gelu", [&] { return activation(x, Activation::gelu); });
}
