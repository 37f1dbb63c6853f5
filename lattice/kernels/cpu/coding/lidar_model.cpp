#include "lattice/kernels/cpu/coding/lidar_model.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/coding/bit_model.h"
#include "lattice/kernels/cpu/coding/logistic.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/coding/lidar_model.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/coding/lidar_model-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

void run_lidar_level(LidarModel& model, const LidarLevel& call) {
  call.encoder ? LevelCoder<false>(model, call).run() : LevelCoder<true>(model, call).run();
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_lidar_level);

// The initial weights of every set, as fractions of 1024: the means of what the sets learned on
// four sweeps of training.
constexpr std::array<int, LidarModel::kInputs> kFirstWeights{
    6,  52, 39,  28, 19, 14, 32, 52,  -7, 13, -17, 3,  42, 8, 71, 73,
    25, 34, -19, -2, 21, 13, -8, -10, 72, 5,  44,  10, 31, 9, 9,  -4,
    47, 24, 42,  21, 41, 20, 45, 24,  44, 22, 584, 20, 26, 0, 0,  0};

LidarModel::LidarModel(int64_t rows)
    : table_bits(std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(rows))) + 2, 8,
                            kMostTableBits)),
      counters(int64_t{kContexts} << table_bits),
      last(int64_t{kLastRows} * kLastSteps) {
  std::fill(counters.begin(), counters.end(), Counter{});
  constexpr std::array<size_t, kSets> kChoices{8 * 28, 256 * 9, 16 * 32, 32 * 32, 32 * 28 * 8};
  std::array<int32_t, kInputs> first;
  for (size_t i = 0; i < first.size(); ++i) first[i] = kFirstWeights[i] * (1 << (kWeightBits - 10));
  for (size_t k = 0; k < kSets; ++k) {
    weights[k] = Buffer<int32_t>(static_cast<int64_t>(kChoices[k] * kInputs));
    for (int32_t* w = weights[k].begin(); w != weights[k].end(); w += kInputs)
      std::copy(first.begin(), first.end(), w);
  }
  std::array<uint16_t, kLastSteps> line;
  for (int i = 0; i < kLastSteps; ++i)
    line[static_cast<size_t>(i)] =
        static_cast<uint16_t>(squash(std::clamp(128 * i - kDomain, 1 - kDomain, kDomain - 1)));
  for (uint16_t* row = last.begin(); row != last.end(); row += kLastSteps)
    std::copy(line.begin(), line.end(), row);
}

void code_lidar_level(LidarModel& model, const LidarLevel& call) {
  HWY_DYNAMIC_DISPATCH(run_lidar_level)(model, call);
}

}  // namespace lattice::cpu
#endif
