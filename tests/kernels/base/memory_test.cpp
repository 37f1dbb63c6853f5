// The block pool and Buffer: reuse, alignment, limits, moves, fork.
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <limits>
#include <new>
#include <thread>
#include <vector>

#include "lattice/kernels/cpu/base/block_pool.h"
#include "lattice/kernels/cpu/base/pages.h"

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace lattice::cpu {
namespace {

class Memory : public ::testing::Test {
 protected:
  void SetUp() override { pool_trim(); }
  void TearDown() override { pool_trim(); }
};

TEST_F(Memory, BlocksAreAlignedAndLargeEnough) {
  for (size_t bytes :
       {1, 63, 64, 65, 4096, 65535, 65536, 70000, 1 << 20, (2 << 20) - 1, 2 << 20, (5 << 20) + 7}) {
    size_t capacity = 0;
    void* block = pool_take(bytes, &capacity);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % 64, 0u) << bytes;
    EXPECT_GE(capacity, bytes);
    EXPECT_LE(capacity, bytes + bytes / 8 + (size_t{2} << 20)) << bytes;
    std::memset(block, 1, bytes);  // the sanitizer checks that they are there
    pool_give(block, capacity);
  }
}

// What Metal shares without a copy: whole pages of 16 KiB.
TEST_F(Memory, LargeBlocksAreWholePages) {
#if !defined(__APPLE__)
  GTEST_SKIP() << "Metal is on Apple's systems only";
#endif
  for (size_t bytes : {16 << 10, (16 << 10) + 1, 40000, 65535, 65536, 70000, 1 << 20, (2 << 20) - 1,
                       2 << 20, (5 << 20) + 7}) {
    size_t capacity = 0;
    void* block = pool_take(bytes, &capacity);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block) % kPageBytes, 0u) << bytes;
    EXPECT_EQ(capacity % kPageBytes, 0u) << bytes;
    pool_give(block, capacity);
  }
  EXPECT_EQ(kPageBytes, size_t{16384});
}

TEST_F(Memory, LargeBlocksComeBack) {
  size_t capacity = 0;
  void* first = pool_take(1 << 20, &capacity);
  pool_give(first, capacity);
  size_t again = 0;
  void* second = pool_take((1 << 20) - 100, &again);
  EXPECT_EQ(second, first);
  EXPECT_EQ(again, capacity);
  size_t other_capacity = 0;
  void* other = pool_take(1 << 20, &other_capacity);
  EXPECT_NE(other, second);  // in use
  pool_give(second, again);
  pool_give(other, other_capacity);
}

TEST_F(Memory, AMuchLargerBlockIsNotWasted) {
  size_t capacity = 0;
  void* large = pool_take(8 << 20, &capacity);
  pool_give(large, capacity);
  size_t small_capacity = 0;
  void* small = pool_take(1 << 20, &small_capacity);
  EXPECT_LT(small_capacity, size_t{2} << 20);
  pool_give(small, small_capacity);
}

std::vector<std::pair<void*, size_t>> take_many(int count, size_t bytes) {
  std::vector<std::pair<void*, size_t>> blocks;
  for (int i = 0; i < count; ++i) {
    size_t capacity = 0;
    void* block = pool_take(bytes, &capacity);  // untouched: costs no memory
    blocks.emplace_back(block, capacity);
  }
  return blocks;
}

// What a training step used is there for the next step.
TEST_F(Memory, KeepsWhatWasInUseAtOneTime) {
  constexpr size_t kBlock = size_t{64} << 20;
  for (auto [block, capacity] : take_many(12, kBlock)) pool_give(block, capacity);
  EXPECT_EQ(pool_bytes(), 12 * kBlock);
  // Blocks of another size push kept ones out.
  const auto others = take_many(16, kBlock / 2);
  EXPECT_LE(pool_bytes() + 8 * kBlock, 18 * kBlock);
  for (auto [block, capacity] : others) pool_give(block, capacity);
  EXPECT_LE(pool_bytes(), 18 * kBlock);
  EXPECT_GT(pool_bytes(), 17 * kBlock);
  pool_trim();
  EXPECT_EQ(pool_bytes(), 0u);
}

TEST_F(Memory, ForgetsAPeakOfLongAgo) {
  constexpr size_t kBlock = size_t{64} << 20;
  for (auto [block, capacity] : take_many(12, kBlock)) pool_give(block, capacity);
  // Small blocks, because AddressSanitizer marks all bytes of a block.
  for (int i = 0; i < 2 << 16; ++i)
    for (auto [block, capacity] : take_many(1, size_t{1} << 16)) pool_give(block, capacity);
  EXPECT_LE(pool_bytes(), kPoolBytes);
}

TEST_F(Memory, KeepsAFixedAmountOfSmallUses) {
  constexpr size_t kBlock = size_t{16} << 20;
  for (size_t bytes = kBlock; bytes < 40 * kBlock; bytes += kBlock) {
    size_t capacity = 0;
    void* block = pool_take(bytes / 3, &capacity);
    pool_give(block, capacity);
    EXPECT_LE(pool_bytes(), kPoolBytes);
  }
  EXPECT_GT(pool_bytes(), kPoolBytes / 2);
}

TEST_F(Memory, SmallBlocksAreNotKept) {
  size_t capacity = 0;
  void* block = pool_take(1000, &capacity);
  pool_give(block, capacity);
  EXPECT_EQ(pool_bytes(), 0u);
}

TEST_F(Memory, ImpossibleSizesThrow) {
  size_t capacity = 0;
  EXPECT_THROW(pool_take(std::numeric_limits<size_t>::max(), &capacity), std::bad_alloc);
  EXPECT_THROW(pool_take(std::numeric_limits<size_t>::max() - (size_t{4} << 20), &capacity),
               std::bad_alloc);
  EXPECT_THROW(Buffer<int64_t>(std::numeric_limits<int64_t>::max()), std::bad_alloc);
  EXPECT_THROW(Buffer<int64_t>((int64_t{1} << 61) + 1),
               std::bad_alloc);  // times 8 is 8 modulo 2^64
  EXPECT_THROW(Buffer<int32_t>(-1), std::bad_alloc);
}

TEST_F(Memory, BufferMovesAndShrinks) {
  Buffer<int32_t> a(100);
  std::fill(a.begin(), a.end(), 7);
  const int32_t* data = a.data();
  Buffer<int32_t> b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(a.data(), nullptr);  // NOLINT: the moved-from value is empty by contract
  EXPECT_EQ(a.size(), 0);
  b.shrink(3);
  EXPECT_EQ(b.size(), 3);
  EXPECT_EQ(b.span().size(), 3u);
  EXPECT_EQ(b.nbytes(), 12u);
  a = std::move(b);
  EXPECT_EQ(a[2], 7);
  a = Buffer<int32_t>();
  EXPECT_TRUE(a.empty());
  EXPECT_EQ(a.begin(), a.end());
}

TEST_F(Memory, SeveralThreads) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      for (int i = 0; i < 300; ++i) {
        Buffer<int32_t> buffer(20000 + 1000 * ((i + t) % 7));
        buffer[0] = t;
        buffer[buffer.size() - 1] = i;
        ASSERT_EQ(buffer[0], t);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(pool_bytes(), 0u);
}

#if !defined(_WIN32)
TEST_F(Memory, ForkWhileAnotherThreadHoldsThePool) {
  std::atomic<bool> stop{false};
  std::thread busy([&] {
    while (!stop) Buffer<int32_t> buffer(50000);
  });
  for (int i = 0; i < 40; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      alarm(10);  // a deadlock ends with a signal
      Buffer<int32_t> buffer(50000);
      buffer[0] = 1;
      _exit(0);
    }
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status)) << "fork " << i;
  }
  stop = true;
  busy.join();
}
#endif

}  // namespace
}  // namespace lattice::cpu
