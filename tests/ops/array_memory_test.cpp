// Memory that MLX arrays and the kernels share. An array owns a buffer of the kernels without a
// copy, and gives the buffer back to the pool.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cstring>
#include <numeric>

#include "lattice/core/arrays.h"
#include "lattice/graph/array_memory.h"
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

TEST(ArrayMemory, a_large_buffer_is_not_copied_and_comes_back) {
  if (mx::is_available(mx::Device::gpu)) GTEST_SKIP() << "a GPU shares memory in its own way";
  constexpr int kCount = 1 << 20;
  lattice::cpu::pool_trim();
  {
    lattice::cpu::Buffer<int32_t> values = counted(kCount);
    const int32_t* data = values.data();
    const mx::array a = lattice::adopt(std::move(values), {kCount});
    EXPECT_EQ(a.data<int32_t>(), data);
    EXPECT_GE(a.buffer_size(), kCount * sizeof(int32_t));
    EXPECT_EQ(lattice::cpu::pool_bytes(), 0u);
  }
  EXPECT_GE(lattice::cpu::pool_bytes(), kCount * sizeof(int32_t));
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
    if (n) EXPECT_NE(a.data<int32_t>(), copy.data<int32_t>());
  }
}

TEST(ArrayMemory, results_begin_on_a_cache_line) {
  for (const size_t bytes : {size_t{0}, size_t{100}, size_t{1} << 16, size_t{5} << 20}) {
    const mx::allocator::Data data = lattice::graph::output_memory(bytes);
    mx::allocator::Buffer buffer = data.buffer();
    if (bytes) std::memset(buffer.raw_ptr(), 1, bytes);
    EXPECT_GE(mx::allocator::allocator().size(buffer), bytes);
    if (bytes >= size_t{1} << 16 && !mx::is_available(mx::Device::gpu))
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.raw_ptr()) % 64, 0u);
  }
}

}  // namespace
