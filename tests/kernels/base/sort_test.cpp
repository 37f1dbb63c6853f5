// radix_sort and sort_keys against std::stable_sort: any bits, 64- and 128-bit words, sorted input,
// one and several threads.
#include "lattice/kernels/cpu/base/sort.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using support::Random;

struct Sorted {
  std::vector<uint64_t> keys;
  std::vector<int32_t> order;
  bool operator==(const Sorted&) const = default;
};

Sorted sort(const std::vector<uint64_t>& keys, int bits) {
  const int64_t n = static_cast<int64_t>(keys.size());
  Buffer<uint64_t> out(n + 2);
  Buffer<int32_t> order(n);
  out[n] = out[n + 1] = 12345;
  sort_keys(n, bits, [&](int64_t i) { return keys[static_cast<size_t>(i)]; }, out, order);
  EXPECT_TRUE(out[n] == 12345 && out[n + 1] == 12345) << "entries behind n are left alone";
  return {{out.begin(), out.begin() + n}, {order.begin(), order.end()}};
}

Sorted reference(const std::vector<uint64_t>& keys) {
  Sorted out{keys, std::vector<int32_t>(keys.size())};
  std::iota(out.order.begin(), out.order.end(), 0);
  std::stable_sort(out.order.begin(), out.order.end(),
                   [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
  for (size_t p = 0; p < keys.size(); ++p) out.keys[p] = keys[static_cast<size_t>(out.order[p])];
  return out;
}

std::vector<uint64_t> random_keys(int64_t n, int bits, uint64_t seed) {
  Random random(seed);
  std::vector<uint64_t> keys(static_cast<size_t>(n));
  for (uint64_t& key : keys) key = bits == 0 ? 0 : random.bits() >> (64 - bits);
  return keys;
}

class SortThreads : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_thread_count(GetParam()); }
  void TearDown() override { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

TEST_P(SortThreads, AnyNumberOfBitsAndRows) {
  // 64 bits with 2 rows or more needs 128-bit words; few bits mean many equal keys, whose order
  // must be kept.
  for (int bits : {0, 1, 5, 11, 12, 22, 23, 33, 47, 48, 63, 64})
    for (int64_t n : {0, 1, 2, 3, 1000, 70001, 300001}) {
      const auto keys =
          random_keys(n, bits, static_cast<uint64_t>(bits) * 1000 + static_cast<uint64_t>(n));
      ASSERT_EQ(sort(keys, bits), reference(keys)) << bits << " bits, " << n << " rows";
    }
}

TEST_P(SortThreads, SortedReversedAndEqual) {
  std::vector<uint64_t> up(200000), down(200000), equal(200000, 77);
  std::iota(up.begin(), up.end(), 0);
  std::iota(down.rbegin(), down.rend(), 0);
  for (const auto& keys : {up, down, equal}) ASSERT_EQ(sort(keys, 18), reference(keys));
  std::swap(up[199998], up[199999]);  // the last pair alone is wrong
  ASSERT_EQ(sort(up, 18), reference(up));
}

TEST_P(SortThreads, WideWords) {
  Random random(3);
  const int64_t n = 200000;
  Buffer<uint128> words(n), spare(n);
  for (uint128& w : words) w = static_cast<uint128>(random.bits()) << 64 | random.bits();
  std::vector<uint128> want(words.begin(), words.end());
  std::sort(want.begin(), want.end());
  radix_sort(words, spare, 0, 128);
  EXPECT_TRUE(std::equal(want.begin(), want.end(), words.begin()));
}

TEST_P(SortThreads, LowBitsTravelAlong) {
  Random random(4);
  const int64_t n = 200000;
  Buffer<uint64_t> words(n), spare(n);
  for (int64_t i = 0; i < n; ++i)
    words[i] = static_cast<uint64_t>(random.below(100)) << 20 | static_cast<uint64_t>(n - i);
  std::vector<uint64_t> want(words.begin(), words.end());
  std::stable_sort(want.begin(), want.end(),
                   [](uint64_t a, uint64_t b) { return a >> 20 < b >> 20; });
  radix_sort(words, spare, 20, 7);
  EXPECT_TRUE(std::equal(want.begin(), want.end(), words.begin()));
}

INSTANTIATE_TEST_SUITE_P(Count, SortThreads, ::testing::Values(1, 2, 3));

}  // namespace
}  // namespace lattice::cpu
