// Packed weights that stay between calls: when they are used, and that nothing stale is.
#include "lattice/kernels/cpu/features/kept_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <vector>

namespace lattice::cpu {
namespace {

// The limit is read once, before the first call.
[[maybe_unused]] const int kLimit = setenv("LATTICE_KEPT_WEIGHTS", "4", 1);

using Values = std::shared_ptr<std::vector<float>>;

Values make(float first, size_t size = 1000) {
  auto values = std::make_shared<std::vector<float>>(size);
  for (size_t i = 0; i < size; ++i) (*values)[i] = first + static_cast<float>(i);
  return values;
}

// Asks for the weights as conv does, and checks that they are those of the array now.
struct Asker {
  int packed = 0;

  bool ask(const Values& values, std::vector<int64_t> layout = {1}) {
    const auto n = static_cast<int64_t>(values->size());
    const WeightOrigin origin{values, values->data(), n * 4, std::move(layout)};
    const KeptWeights kept = kept_weights(origin, n, [&](float* to) {
      ++packed;
      std::copy(values->begin(), values->end(), to);
    });
    if (kept) {
      EXPECT_TRUE(std::equal(values->begin(), values->end(), kept->data()));
    }
    return kept != nullptr;
  }
};

TEST(KeptWeights, PacksAtTheSecondSightAndNeverAgain) {
  const Values values = make(1);
  Asker asker;
  EXPECT_FALSE(asker.ask(values));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(asker.ask(values));
  EXPECT_EQ(asker.packed, 1);
  EXPECT_FALSE(asker.ask(values, {2}));  // another layout is another packing
}

// Writes behind the back of whoever owns the array, at places of the sample.
TEST(KeptWeights, AWriteIntoTheSampleIsSeen) {
  const Values values = make(2);
  Asker asker;
  for (int i = 0; i < 3; ++i) asker.ask(values);
  for (const size_t at : {size_t{0}, size_t{517}, values->size() - 1}) {
    (*values)[at] += 1;
    EXPECT_FALSE(asker.ask(values));
    for (int i = 0; i < 70; ++i) asker.ask(values);
    EXPECT_TRUE(asker.ask(values));
  }
  std::reverse(values->begin(), values->end());  // the same values in another order
  EXPECT_FALSE(asker.ask(values));
}

// A training loop that writes into the same buffer packs for keeping ever less often.
TEST(KeptWeights, AnArrayThatAlwaysChangesIsSeldomKept) {
  const Values values = make(3);
  Asker asker;
  for (int i = 0; i < 1000; ++i) {
    (*values)[5] += 1;
    asker.ask(values);
  }
  EXPECT_LE(asker.packed, 24);
}

TEST(KeptWeights, AFreedArrayIsForgotten) {
  const int64_t before = kept_weight_bytes();
  Asker asker;
  Values values = make(4);
  const void* data = values->data();
  asker.ask(values);
  asker.ask(values);
  EXPECT_EQ(kept_weight_bytes(), before + 4000);
  // A new array at the same place, even with the same values, is a new array.
  std::vector<float> memory = std::move(*values);
  values = std::make_shared<std::vector<float>>(std::move(memory));
  ASSERT_EQ(values->data(), data);
  EXPECT_EQ(kept_weight_bytes(), before);
  EXPECT_FALSE(asker.ask(values));
  EXPECT_TRUE(asker.ask(values));
  values = nullptr;
  EXPECT_EQ(kept_weight_bytes(), before);
}

TEST(KeptWeights, KeepsNoMoreThanTheLimit) {
  Asker asker;
  std::vector<Values> many;
  const auto size = static_cast<size_t>(kept_weight_limit() / 16);  // a quarter of the limit
  for (int i = 0; i < 6; ++i) many.push_back(make(static_cast<float>(i), size));
  for (int round = 0; round < 3; ++round)
    for (const Values& values : many) asker.ask(values);
  EXPECT_LE(kept_weight_bytes(), kept_weight_limit());
  EXPECT_EQ(asker.packed, 4);
  // What nobody asks for makes room in the end.
  const Values small = make(7);
  for (int i = 0; i < 1100; ++i) asker.ask(small);
  for (int i = 0; i < 2; ++i) asker.ask(many[5]);
  EXPECT_TRUE(asker.ask(many[5]));
}

}  // namespace
}  // namespace lattice::cpu
