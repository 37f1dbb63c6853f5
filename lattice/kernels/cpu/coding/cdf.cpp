#include "lattice/kernels/cpu/coding/cdf.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <stdexcept>
#include <string>

#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 10;

// The smallest row for which bad(row) holds, or -1.
template <typename F>
int64_t first_bad(int64_t rows, const F& bad) {
  std::atomic<int64_t> found{rows};
  parallel_range(rows, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r)
      if (bad(r)) {
        int64_t seen = found.load(std::memory_order_relaxed);
        while (r < seen && !found.compare_exchange_weak(seen, r, std::memory_order_relaxed)) {
        }
        return;
      }
  });
  return found.load() == rows ? -1 : found.load();
}

bool fill_row(const float* p, int64_t alphabet, uint16_t* out) {
  const double scale = static_cast<double>(65536 - alphabet);
  double sum = 0;
  bool finite = true;
  out[0] = 0;
  for (int64_t j = 1; j < alphabet; ++j) {
    const double v = double{p[j - 1]};
    finite = finite && std::isfinite(v);
    sum += std::min(std::max(v, 0.0), 1.0);
    const double c = std::min(std::nearbyint(std::min(sum, 1.0) * scale), scale);
    out[j] = static_cast<uint16_t>(static_cast<int64_t>(c) + j);
  }
  out[alphabet] = 0;
  return finite && std::isfinite(p[alphabet - 1]);
}

// No branch inside, so compilers use vectors.
bool ascends(const uint16_t* t, int64_t alphabet) {
  uint16_t bad = 0;
  for (int64_t j = 0; j + 1 < alphabet; ++j) bad |= static_cast<uint16_t>(t[j] >= t[j + 1]);
  return bad == 0 && t[0] == 0 && t[alphabet] == 0;
}

}  // namespace

void normalized_cdf(const float* prob, int64_t rows, int64_t alphabet, uint16_t* out,
                    std::string_view operation) {
  const int64_t row = first_bad(rows, [&](int64_t r) {
    return !fill_row(prob + r * alphabet, alphabet, out + r * (alphabet + 1));
  });
  if (row >= 0)
    throw std::invalid_argument("[" + std::string(operation) + "] prob row " + std::to_string(row) +
                                " holds a NaN or an infinity, expected finite values");
}

void check_cdf(const CdfSpan& cdf, std::string_view operation) {
  const int64_t row = first_bad(cdf.tables, [&](int64_t r) {
    return !ascends(cdf.data + r * (cdf.alphabet + 1), cdf.alphabet);
  });
  if (row >= 0)
    throw std::invalid_argument("[" + std::string(operation) + "] cdf row " + std::to_string(row) +
                                " must ascend strictly from 0 to 65536, stored as 0");
}

uint32_t largest_size(const CdfSpan& cdf) {
  uint32_t most = 0;
  for (int64_t r = 0; r < cdf.tables; ++r) {
    const uint16_t* t = cdf.data + r * (cdf.alphabet + 1);
    for (int64_t s = 0; s < cdf.alphabet; ++s) most = std::max(most, cdf.size(t, s));
  }
  return most;
}

}  // namespace lattice::cpu
