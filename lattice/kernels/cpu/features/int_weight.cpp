// Integer weights: the lane rule, the proof that sums stay in int32, packing, rounding.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/int_conv.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kLaneBlock = 16;  // input channels of two lanes

// Sums of the positive and of the negative weights of the lane of channels b + 2 h.
struct LaneSums {
  int32_t above = 0, below = 0;
  int32_t most() const { return std::max(above, below); }
};
LaneSums lane_sums(const int8_t* column, int64_t c_in, int64_t pitch, int64_t begin) {
  LaneSums sums;
  for (int64_t s = 0; s < 4; ++s)
    for (int64_t c = begin + 4 * s; c < std::min(begin + 4 * s + 2, c_in); ++c) {
      const int32_t q = column[c * pitch];
      (q > 0 ? sums.above : sums.below) += std::abs(q);
    }
  return sums;
}

// Largest lane sum of output channel m; `where` receives offset and first channel of the lane.
int32_t worst_lane(const int8_t* w, int64_t n_k, int64_t c_in, int64_t c_out, int64_t m,
                   int64_t (&where)[2]) {
  int32_t worst = 0;
  for (int64_t k = 0; k < n_k; ++k)
    for (int64_t b = 0; b < c_in; b += kLaneBlock)
      for (int64_t h = 0; h < 4; h += 2) {
        const int32_t found = lane_sums(w + k * c_in * c_out + m, c_in, c_out, b + h).most();
        if (found > worst) worst = found, where[0] = k, where[1] = b + h;
      }
  return worst;
}

// Largest |sum| of output channel m.
double worst_sum(const IntLayer& layer, int64_t m) {
  int64_t weights = 0;
  for (int64_t i = 0; i < layer.n_k * layer.c_in; ++i)
    weights += std::abs(int32_t{layer.w[i * layer.c_out + m]});
  double sum = static_cast<double>(weights) * static_cast<double>(int_input_most(layer.in));
  sum += std::fabs(static_cast<double>(layer.bias[m]));
  if (layer.factor)
    sum += std::fabs(static_cast<double>(layer.factor[m])) *
           static_cast<double>(int_residual_most(layer.residual));
  return sum;
}

// One output channel while its unit is sought.
class Column {
 public:
  Column(const float* w, int64_t n, int64_t c_out, int64_t m) : values_(static_cast<size_t>(n)) {
    for (int64_t i = 0; i < n; ++i) {
      const double v = static_cast<double>(w[i * c_out + m]);
      if (!std::isfinite(v))
        throw std::invalid_argument("output channel " + std::to_string(m) +
                                    " has a weight that is not finite");
      values_[static_cast<size_t>(i)] = v;
      most_ = std::max(most_, std::fabs(v));
    }
    codes_.resize(values_.size());
  }
  double most() const { return most_; }
  const std::vector<int8_t>& codes() const { return codes_; }

  // Whether all rules hold with this unit.
  bool fits(double unit, int64_t n_k, int64_t c_in, bool lanes) {
    if (most_ > 127.5 * unit) return false;
    // Adding 1.5 * 2^52 rounds to a whole number, ties to even. Calls of nearbyint took most of the
    // time of making a network.
    constexpr double kRound = 6755399441055744.0;
    for (size_t i = 0; i < values_.size(); ++i) {
      const double q = (values_[i] / unit + kRound) - kRound;
      if (std::fabs(q) > 127) return false;
      codes_[i] = static_cast<int8_t>(q);
    }
    int64_t where[2];
    return !lanes || worst_lane(codes_.data(), n_k, c_in, 1, 0, where) <= kIntLaneMost;
  }

 private:
  std::vector<double> values_;
  std::vector<int8_t> codes_;
  double most_ = 0;
};

// The next unit that may fit: half a percent more, or the next that divides `whole`.
double next_unit(double unit, double whole, double* factor) {
  if (whole <= 0) return unit * 1.005;
  *factor = std::min(*factor - 1, std::floor(*factor / 1.005));
  return whole / *factor;
}

double find_unit(Column& column, int64_t n_k, int64_t c_in, double least, double whole, bool lanes,
                 int64_t m) {
  double unit = std::max(column.most() / 127, least), factor = 0;
  if (unit <= 0) unit = 1;
  if (whole > 0) factor = std::floor(whole / unit), unit = whole / factor;
  while (whole <= 0 || factor >= 1) {
    unit = static_cast<double>(static_cast<float>(unit));
    if (column.fits(unit, n_k, c_in, lanes)) return unit;
    unit = next_unit(unit, whole, &factor);
  }
  throw std::invalid_argument("output channel " + std::to_string(m) +
                              ": its weights are so large that one step of the residual would be "
                              "less than one unit of its sums");
}

}  // namespace

int64_t int_type_bytes(IntType type) {
  return type == IntType::f32 ? 4 : type == IntType::i16 ? 2 : 1;
}
// Of s8 too: while sums are made, its bytes count as 0 .. 255.
int64_t int_input_most(IntType type) { return type == IntType::i16 ? 2047 : 255; }
int64_t int_residual_most(IntType type) { return type == IntType::i16 ? 32767 : 255; }
int64_t int_zero(IntType type) { return type == IntType::s8 ? 128 : 0; }

std::string lane_rule_broken(const IntLayer& layer) {
  if (layer.in == IntType::i16) return {};
  for (int64_t m = 0; m < layer.c_out; ++m) {
    int64_t where[2] = {0, 0};
    const int32_t worst = worst_lane(layer.w, layer.n_k, layer.c_in, layer.c_out, m, where);
    if (worst > kIntLaneMost)
      return "output channel " + std::to_string(m) + ", offset " + std::to_string(where[0]) +
             ", input channels " + std::to_string(where[1]) + ", " + std::to_string(where[1] + 1) +
             " and every fourth up to 16: weights of one sign add up to " + std::to_string(worst) +
             ", expected at most " + std::to_string(kIntLaneMost);
  }
  return {};
}

std::string sums_overflow(const IntLayer& layer) {
  for (int64_t m = 0; m < layer.c_out; ++m)
    if (const double sum = worst_sum(layer, m); sum >= 0x1p31)
      return "output channel " + std::to_string(m) + ": a sum can reach " +
             std::to_string(static_cast<int64_t>(sum)) + ", expected less than 2^31";
  return {};
}

double share_of_int32(const IntLayer& layer) {
  double most = 0;
  for (int64_t m = 0; m < layer.c_out; ++m) most = std::max(most, worst_sum(layer, m));
  return most / 0x1p31;
}

IntWeight::IntWeight(const IntLayer& layer, bool proven)
    : in(layer.in), n_k(layer.n_k), c_in(layer.c_in), c_out(layer.c_out) {
  if (const std::string why = sums_overflow(layer); !why.empty()) throw std::invalid_argument(why);
  if (const std::string why = proven ? lane_rule_broken(layer) : ""; !why.empty())
    throw std::invalid_argument(why);
  const int64_t bytes = int_type_bytes(in), group = 4 / bytes;
  row_bytes = (c_in * bytes + 15) / 16 * 16;
  panels = (c_out + kIntPanel - 1) / kIntPanel;
  blocks = Buffer<uint8_t>(n_k * panels * row_bytes * kIntPanel);
  std::fill(blocks.begin(), blocks.end(), uint8_t{0});
  if (bytes == 1) {
    shift = Buffer<int32_t>(n_k * panels * kIntPanel);
    std::fill(shift.begin(), shift.end(), 0);
  }
  const int32_t toward = in == IntType::s8 ? -128 : 128;
  for (int64_t k = 0; k < n_k; ++k)
    for (int64_t c = 0; c < c_in; ++c)
      for (int64_t m = 0; m < c_out; ++m) {
        if (bytes == 1)
          shift[k * panels * kIntPanel + m] += toward * layer.w[(k * c_in + c) * c_out + m];
        const int8_t q = layer.w[(k * c_in + c) * c_out + m];
        const int64_t at = ((k * panels + m / kIntPanel) * row_bytes + c / group * 4) * kIntPanel +
                           m % kIntPanel * 4 + c % group * bytes;
        const int16_t wide = q;
        std::memcpy(blocks.data() + at, bytes == 1 ? static_cast<const void*>(&q) : &wide,
                    static_cast<size_t>(bytes));
      }
  const auto padded = [&]<typename T>(const T* from) {
    Buffer<T> to(panels * kIntPanel);
    std::fill(std::copy(from, from + c_out, to.begin()), to.end(), T{0});
    return to;
  };
  bias = padded(layer.bias);
  scale = padded(layer.scale);
  if (layer.factor) factor = padded(layer.factor);
}

IntCodes round_weights(const float* w, int64_t n_k, int64_t c_in, int64_t c_out,
                       std::span<const float> least, std::span<const float> whole, bool lanes) {
  IntCodes made{Buffer<int8_t>(n_k * c_in * c_out), Buffer<float>(c_out)};
  parallel_for(c_out, [&](int64_t m) {
    const auto at = static_cast<size_t>(m);
    Column column(w, n_k * c_in, c_out, m);
    const double unit = find_unit(column, n_k, c_in, static_cast<double>(least[at]),
                                  whole.empty() ? 0 : static_cast<double>(whole[at]), lanes, m);
    made.unit[m] = static_cast<float>(unit);
    for (int64_t i = 0; i < n_k * c_in; ++i)
      made.w[i * c_out + m] = column.codes()[static_cast<size_t>(i)];
  });
  return made;
}

}  // namespace lattice::cpu
