// Convolution in integers against our float32 and a large sgemm, in one run, one thread.
//
//   integer_bench [lidar|room]
//   LATTICE_SIMD=AVX2 integer_bench   the kernels of a machine without VNNI
//
// FLOP = 2 * edges * C * C. Each line is timed in turns with the others; the best CPU time counts.
// Integer figures include bias, residual, ReLU, rounding and the store; float32 has packed weights.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/blas.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/int_conv.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace {

using namespace lattice;
using namespace lattice::cpu;

struct Problem {
  std::string name;
  RelationLists lists;
  bool one_edge_each = false;
};

std::vector<Problem> problems(const support::Coords& coords) {
  const CoordSpan span{coords.data(), static_cast<int64_t>(coords.size()) / 4, false};
  const auto index = std::make_shared<const CoordIndex>(index_coords(span));
  MadeCoords made;
  RelationLists down =
      relate_downscaled(span, index, {.size = {2, 2, 2}, .stride = {2, 2, 2}}, &made);
  RelationLists same;
  same.n_in = same.n_out = same.n_edges = span.rows;
  same.lists.resize(1);
  same.lists[0].size = span.rows;
  std::vector<Problem> all;
  all.push_back({"3x3x3", relate_same(index, Kernel{})});
  all.push_back({"2x2x2 up", reversed(down), true});
  all.push_back({"2x2x2 down", std::move(down)});
  all.push_back({"pointwise", std::move(same)});
  return all;
}

double seconds(const std::function<void()>& work) {
  const double begin = bench::cpu_seconds();
  work();
  return bench::cpu_seconds() - begin;
}

// Data of one layer of C channels in both kinds of numbers.
class Layer {
 public:
  Layer(const Problem& p, int64_t c)
      : p_(p), c_(c), bounds_(tile_bounds(p.lists, conv_tile(p.lists))) {
    support::Random random(1);
    const int64_t n_w = p.lists.n_k() * c * c;
    for (int64_t i = 0; i < n_w; ++i) w_.push_back(static_cast<float>(random.bump()));
    const std::vector<float> least(static_cast<size_t>(c), 1e-6f);
    const IntCodes codes = round_weights(w_.data(), p.lists.n_k(), c, c, least, {}, true);
    bias_.assign(static_cast<size_t>(c), 100);
    scale_.assign(static_cast<size_t>(c), 1e-4f);
    for (int64_t i = 0; i < p.lists.n_in * c; ++i)
      x_.push_back(static_cast<uint8_t>(random.bits()));
    xf_.assign(x_.begin(), x_.end());
    y_.resize(static_cast<size_t>(p.lists.n_out * c));
    r_ = y_;
    yf_.resize(y_.size());
    rf_ = yf_;
    weight_ = std::make_unique<IntWeight>(IntLayer{.n_k = p.lists.n_k(),
                                                   .c_in = c,
                                                   .c_out = c,
                                                   .w = codes.w.data(),
                                                   .bias = bias_.data(),
                                                   .scale = scale_.data(),
                                                   .factor = bias_.data()});
    dense_ = std::make_unique<DenseWeight>(ConvShape{c, c}, w_.data());
    panels_ = pack_weight(*dense_, p.lists.n_k(), ConvShape{c, c});
  }
  double flop() const {
    return 2.0 * static_cast<double>(p_.lists.n_edges * c_) * static_cast<double>(c_);
  }
  void integers() {
    IntConvArgs args{.weight = weight_.get(), .x = {x_.data(), c_}, .residual = r_.data()};
    args.y = y_.data();
    args.one_edge_each = p_.one_edge_each;
    int_conv(p_.lists, bounds_, args);
  }
  void floats() {
    ConvArgs args{.shape = {c_, c_}, .x = xf_.data(), .weight = dense_.get(), .y = yf_.data()};
    args.norm = {scale_.data(), scale_.data(), scale_.data(), rf_.data(), true};
    args.panels = panels_.get();
    conv(p_.lists, bounds_, args);
  }

 private:
  const Problem& p_;
  int64_t c_;
  TileBounds bounds_;
  std::vector<float> w_, scale_, xf_, yf_, rf_;
  std::vector<int32_t> bias_;
  std::vector<uint8_t> x_, y_, r_;
  std::unique_ptr<IntWeight> weight_;
  std::unique_ptr<DenseWeight> dense_;
  std::shared_ptr<const WeightPanels> panels_;
};

// Seconds per FLOP of a large sgemm; NaN without OpenBLAS.
double sgemm() {
#if defined(LATTICE_HAS_BLAS)
  static bench::LargeGemm gemm(1);
  return seconds([&] { gemm.run(); }) / gemm.flop();
#else
  return std::numeric_limits<double>::quiet_NaN();
#endif
}

void measure(const std::string& scene) {
  for (const Problem& p : problems(support::scene(scene).coords))
    for (const int64_t c : {32, 64, 128, 256}) {
      Layer layer(p, c);
      double best[3] = {1e30, 1e30, sgemm()};
      for (int turn = 0; turn < 5; ++turn) {
        best[0] = std::min(best[0], seconds([&] { layer.integers(); }) / layer.flop());
        best[1] = std::min(best[1], seconds([&] { layer.floats(); }) / layer.flop());
        if (turn < 2) best[2] = std::min(best[2], sgemm());
      }
      std::printf(
          "%-6s %-11s C = %-4lld integers %6.1f GFLOP/s, %4.2f of sgemm, %4.2f of float32; "
          "float32 %4.2f of sgemm\n",
          scene.c_str(), p.name.c_str(), static_cast<long long>(c), 1e-9 / best[0],
          best[2] / best[0], best[1] / best[0], best[2] / best[1]);
      std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
  set_thread_count(1);
  std::printf("instruction set of the integers: %s\n", int_conv_target());
  for (const char* scene : {"lidar", "room"})
    if (argc < 2 || std::string(argv[1]) == scene) measure(scene);
}
