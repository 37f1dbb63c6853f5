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
// eight sweeps of training.
constexpr std::array<int, LidarModel::kInputs> kFirstWeights{
    -26, 6,  5,  44, 39, 26, 20, 13, 29, 47, 8,  10, -7, 8, -11, 5, 1,  4,  41, 7,  70,  69, 23, 30,
    -16, -5, 22, 13, 12, 2,  8,  -2, -4, -9, 15, 10, 69, 5, 42,  8, 32, 10, 10, -4, 587, 18, 24, 0};

LidarModel::LidarModel(int64_t rows)
    : table_bits(std::clamp(static_cast<int>(std::bit_width(static_cast<uint64_t>(rows))) + 2, 8,
                            kMostTableBits)),
      counters(size_t{kContexts} << table_bits),
      last(size_t{kLastRows} * kLastSteps) {
  constexpr std::array<size_t, kSets> kChoices{8 * 28, 256 * 9, 16 * 32, 32 * 32, 32 * 28 * 8};
  for (size_t k = 0; k < kSets; ++k) {
    weights[k].resize(kChoices[k] * kInputs);
    for (size_t i = 0; i < weights[k].size(); ++i)
      weights[k][i] = kFirstWeights[i % kInputs] * ((1 << kWeightBits) / 1024);
  }
  for (size_t i = 0; i < last.size(); ++i) {
    const auto step = static_cast<int>(i % kLastSteps) - kLastSteps / 2;
    last[i] =
        kLogistic.squash[static_cast<size_t>(std::clamp(step * 128 + kDomain, 1, 2 * kDomain - 1))];
  }
}

void code_lidar_level(LidarModel& model, const LidarLevel& call) {
  HWY_DYNAMIC_DISPATCH(run_lidar_level)(model, call);
}

}  // namespace lattice::cpu
#endif
