// Convolution in integers against our float32 and a large sgemm, in one run, one thread.
//
//   integer_bench [lidar|room [channels [sorted|shuffled [threads]]]]
//   LATTICE_SIMD=AVX2 OPENBLAS_CORETYPE=Haswell integer_bench   as a machine without AVX-512
//
// FLOP = 2 * edges * C * C. Every way to multiply bytes that the machine has is timed in turns with
// float32 and sgemm; the best time counts, CPU time with one thread and elapsed time with several.
// Integer figures include bias, residual, ReLU, rounding and the store; float32 has packed weights.
// Where the machine has AVX-512 BF16, bfloat16 rows are timed too; they pack their weights each
// time.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "bench/support/blas.h"
#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/bf16_conv.h"
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

double now() {
  if (thread_count() == 1) return bench::cpu_seconds();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}
double seconds(const std::function<void()>& work) {
  const double begin = now();
  work();
  return now() - begin;
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
    for (const float v : xf_) xb_.push_back(to_bf16(v));
    for (const float v : w_) wb_.push_back(to_bf16(v));
    y_.resize(static_cast<size_t>(p.lists.n_out * c));
    r_ = y_;
    yf_.resize(y_.size());
    rf_ = yf_;
    rb_.resize(y_.size());
    yb_ = rb_;
    weight_ = std::make_unique<IntWeight>(IntLayer{.n_k = p.lists.n_k(),
                                                   .c_in = c,
                                                   .c_out = c,
                                                   .w = codes.w.data(),
                                                   .bias = bias_.data(),
                                                   .scale = scale_.data(),
                                                   .factor = bias_.data()});
    dense_ = std::make_unique<DenseWeight>(ConvShape{c, c}, w_.data());
    dense_bf16_ = std::make_unique<DenseWeight>(ConvShape{c, c, 1, FloatType::bf16}, wb_.data());
    panels_ = pack_weight(*dense_, p.lists.n_k(), ConvShape{c, c});
  }
  double flop() const {
    return 2.0 * static_cast<double>(p_.lists.n_edges * c_) * static_cast<double>(c_);
  }
  void integers(IntDot dot) {
    IntConvArgs args{.weight = weight_.get(), .x = {x_.data(), c_}, .residual = r_.data()};
    args.y = y_.data();
    args.one_edge_each = p_.one_edge_each;
    args.dot = dot;
    int_conv(p_.lists, bounds_, args);
  }
  void floats() {
    ConvArgs args{.shape = {c_, c_}, .x = xf_.data(), .weight = dense_.get(), .y = yf_.data()};
    args.norm = {scale_.data(), scale_.data(), scale_.data(), rf_.data(), true};
    args.panels = panels_.get();
    conv(p_.lists, bounds_, args);
  }
  void bfloats() {
    ConvArgs args{.shape = {c_, c_, 1, FloatType::bf16},
                  .x = xb_.data(),
                  .weight = dense_bf16_.get(),
                  .y = yb_.data()};
    args.norm = {scale_.data(), scale_.data(), scale_.data(), rb_.data(), true};
    bf16_conv(p_.lists, bounds_, args);
  }

 private:
  static uint16_t to_bf16(float v) {
    uint32_t bits = 0;
    std::memcpy(&bits, &v, sizeof(bits));
    return static_cast<uint16_t>(bits >> 16);
  }

  const Problem& p_;
  int64_t c_;
  TileBounds bounds_;
  std::vector<float> w_, scale_, xf_, yf_, rf_;
  std::vector<int32_t> bias_;
  std::vector<uint8_t> x_, y_, r_;
  std::vector<uint16_t> wb_, xb_, yb_, rb_;
  std::unique_ptr<IntWeight> weight_;
  std::unique_ptr<DenseWeight> dense_, dense_bf16_;
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

// The rows in the order of their coordinates.
support::Coords sorted(const support::Coords& coords) {
  std::vector<std::array<int32_t, 4>> rows(coords.size() / 4);
  std::memcpy(rows.data(), coords.data(), coords.size() * sizeof(int32_t));
  std::sort(rows.begin(), rows.end());
  support::Coords out(coords.size());
  std::memcpy(out.data(), rows.data(), coords.size() * sizeof(int32_t));
  return out;
}

void measure(const std::string& scene, int64_t channels, bool sort) {
  const support::Coords coords = support::scene(scene).coords;
  std::vector<IntDot> dots = int_dots();
  dots.pop_back();  // plain C++ takes too long
  for (const Problem& p : problems(sort ? sorted(coords) : coords))
    for (const int64_t c : {32, 64, 128, 256}) {
      if (channels && c != channels) continue;
      Layer layer(p, c);
      std::vector<double> best(dots.size(), 1e30);
      double floats = 1e30, bfloats = 1e30, gemm = sgemm();
      for (int turn = 0; turn < 5; ++turn) {
        for (size_t i = 0; i < dots.size(); ++i)
          best[i] = std::min(best[i], seconds([&] { layer.integers(dots[i]); }) / layer.flop());
        floats = std::min(floats, seconds([&] { layer.floats(); }) / layer.flop());
        if (has_bf16_products())
          bfloats = std::min(bfloats, seconds([&] { layer.bfloats(); }) / layer.flop());
        if (turn < 2) gemm = std::min(gemm, sgemm());
      }
      std::printf("%-6s %-10s C = %-4lld float32 %6.1f GFLOP/s, %4.2f of sgemm", scene.c_str(),
                  p.name.c_str(), static_cast<long long>(c), 1e-9 / floats, gemm / floats);
      for (size_t i = 0; i < dots.size(); ++i)
        std::printf("; %s %6.1f, %4.2f of sgemm, %4.2f of float32", name(dots[i]), 1e-9 / best[i],
                    gemm / best[i], floats / best[i]);
      if (has_bf16_products())
        std::printf("; bfloat16 %6.1f, %4.2f of sgemm, %4.2f of float32", 1e-9 / bfloats,
                    gemm / bfloats, floats / bfloats);
      std::printf("\n");
      std::fflush(stdout);
    }
}

}  // namespace

int main(int argc, char** argv) {
  set_thread_count(argc > 4 ? std::atoi(argv[4]) : 1);
  const int64_t channels = argc > 2 ? std::atoll(argv[2]) : 0;
  const bool sort = argc > 3 && std::string(argv[3]) == "sorted";
  for (const char* scene : {"lidar", "room"})
    if (argc < 2 || std::string(argv[1]) == scene) measure(scene, channels, sort);
}
