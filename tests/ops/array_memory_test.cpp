// The memory of MLX arrays: results of cpu_call, and arrays made from buffers of the kernels.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <algorithm>
#include <numeric>

#include "lattice/core/arrays.h"
#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/base/memory.h"

namespace mx = mlx::core;

namespace {

lattice::cpu::Buffer<int32_t> counted(int64_t n) {
  lattice::cpu::Buffer<int32_t> values(n);
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(ArrayMemory, an_array_has_the_values_of_the_buffer) {
  for (const int n : {0, 1, 100, 4096, 100000, 1000003}) {
    const mx::array a = lattice::adopt(counted(n), {n});
    EXPECT_EQ(a.shape(), mx::Shape{n});
    EXPECT_TRUE(mx::array_equal(a, mx::arange(0, n, mx::int32)).item<bool>()) << n;
  }
}

TEST(ArrayMemory, a_copied_buffer_goes_back_to_the_pool) {
  if (mx::is_available(mx::Device::gpu)) GTEST_SKIP() << "a GPU shares the memory";
  constexpr int kCount = 1 << 20;
  lattice::cpu::pool_trim();
  const mx::array a = lattice::adopt(counted(kCount), {kCount});
  EXPECT_GE(lattice::cpu::pool_bytes(), kCount * sizeof(int32_t));
  EXPECT_TRUE(mx::array_equal(a, mx::arange(0, kCount, mx::int32)).item<bool>());
}

// MLX reads the size of the memory, because it looks for memory that it may write results into.
TEST(ArrayMemory, mlx_computes_with_the_array) {
  constexpr int kCount = 100000;
  mx::array a = lattice::adopt(counted(kCount), {kCount});
  for (int i = 0; i < 3; ++i) {
    a = a + mx::array(1);
    a.eval();
  }
  EXPECT_TRUE(mx::array_equal(a, mx::arange(3, kCount + 3, mx::int32)).item<bool>());
}

TEST(ArrayMemory, a_private_copy_has_memory_of_its_own) {
  for (const int n : {0, 5, 1 << 18}) {
    const mx::array a = lattice::adopt(counted(n), {n});
    const mx::array copy = lattice::private_copy(a);
    EXPECT_EQ(copy.dtype(), mx::int32);
    EXPECT_TRUE(mx::array_equal(a, copy).item<bool>()) << n;
    EXPECT_TRUE(n == 0 || a.data<int32_t>() != copy.data<int32_t>());
  }
}

// A node of ours whose result has n values of 1.
mx::array ones(int n) {
  return lattice::graph::cpu_call(
      "ones", "", {}, {{{n}, mx::float32}},
      [](std::span<const lattice::graph::Input>, std::span<const lattice::graph::Output> out) {
        std::fill_n(out[0].as<float>(), out[0].size, 1.0f);
      },
      mx::Device::cpu)[0];
}

// Sizes around those of the pool's blocks, each several times, with other results in between.
TEST(ArrayMemory, results_are_right_in_memory_that_is_used_again) {
  for (int round = 0; round < 3; ++round)
    for (const int n : {0, 1, 16383, 16384, 16385, 20000, 100000, 1000003}) {
      const mx::array a = ones(n), b = mx::add(ones(n), mx::array(round));
      EXPECT_EQ(mx::sum(mx::add(a, b)).item<float>(), static_cast<float>(n) * (2 + round)) << n;
    }
}

// Otherwise every sum behind a kernel of ours would touch fresh pages.
TEST(ArrayMemory, mlx_writes_in_place_into_our_results) {
  if (mx::is_available(mx::Device::gpu)) GTEST_SKIP() << "the memory is MLX's own";
  for (const int n : {16384, 20000, 1000003}) {
    mx::array a = ones(n);
    a.eval();
    const float* data = a.data<float>();
    EXPECT_LE(a.buffer_size(), a.nbytes() + 64);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 64, 0u);
    EXPECT_TRUE(a.is_donatable());
    mx::array sum = mx::add(std::move(a), mx::array(1.0f));
    a = mx::array(0.0f);
    sum.eval();
    EXPECT_EQ(sum.data<float>(), data) << n;
    EXPECT_EQ(mx::sum(sum).item<float>(), 2.0f * static_cast<float>(n));
  }
}

}  // namespace
