// What the library says about itself.
#include "lattice/ops/backend.h"

#include <gtest/gtest.h>

#include <stdexcept>

#include "lattice/graph/gpu_call.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/routes/capability.h"

TEST(Backend, versions_agree) {
  lattice::BackendInfo info = lattice::backend_info();
  EXPECT_EQ(info.mlx_built, info.mlx_running);
  EXPECT_FALSE(info.version.empty());
  EXPECT_FALSE(info.simd.empty());
  EXPECT_TRUE(info.cpu);
}

TEST(Backend, tier_follows_metal) {
  lattice::BackendInfo info = lattice::backend_info();
  if (!info.metal) {
    EXPECT_EQ(info.tensor_ops, "unavailable");
  }
  EXPECT_STREQ(lattice::name(lattice::TensorOps::unavailable), "unavailable");
  EXPECT_STREQ(lattice::name(lattice::TensorOps::gpu), "gpu");
  EXPECT_STREQ(lattice::name(lattice::TensorOps::neural_accelerator), "neural_accelerator");
}

// macOS and the family first, then the generation; phones are accelerated one generation later.
TEST(Backend, tier_of_a_gpu) {
  using lattice::TensorOps;
  EXPECT_EQ(lattice::tier_of("applegpu_g17s", false), TensorOps::unavailable);  // macOS 26.1
  EXPECT_EQ(lattice::tier_of("applegpu_g12g", true), TensorOps::unavailable);
  EXPECT_EQ(lattice::tier_of("", true), TensorOps::unavailable);
  EXPECT_EQ(lattice::tier_of("applegpu_g13g", true), TensorOps::gpu);
  EXPECT_EQ(lattice::tier_of("applegpu_g16d", true), TensorOps::gpu);
  EXPECT_EQ(lattice::tier_of("applegpu_g17p", true), TensorOps::gpu);
  EXPECT_EQ(lattice::tier_of("applegpu_g17s", true), TensorOps::neural_accelerator);
  EXPECT_EQ(lattice::tier_of("applegpu_g18p", true), TensorOps::neural_accelerator);
}

TEST(Backend, forced_tier) {
  const lattice::TensorOps own = lattice::tensor_ops();
  lattice::graph::stand_in().tensor_ops = lattice::TensorOps::neural_accelerator;
  EXPECT_EQ(lattice::tensor_ops(), lattice::TensorOps::neural_accelerator);
  lattice::graph::stand_in() = {};
  EXPECT_EQ(lattice::tensor_ops(), own);
}

TEST(Backend, generation_of_a_gpu) {
  EXPECT_EQ(lattice::gpu_generation("applegpu_g13g"), 13);
  EXPECT_EQ(lattice::gpu_generation("applegpu_g17s"), 17);
  EXPECT_EQ(lattice::gpu_generation("applegpu"), 0);
  EXPECT_EQ(lattice::gpu_generation(""), 0);
}

TEST(Backend, released_memory_is_not_kept) {
  {
    const lattice::cpu::Buffer<char> working(1 << 20);
  }
  EXPECT_GT(lattice::cpu::pool_bytes(), 0u);
  lattice::release_memory();
  EXPECT_EQ(lattice::cpu::pool_bytes(), 0u);
}

TEST(Backend, thread_count) {
  int before = lattice::backend_info().threads;
  lattice::set_thread_count(3);
  EXPECT_EQ(lattice::backend_info().threads, 3);
  EXPECT_THROW(lattice::set_thread_count(0), std::invalid_argument);
  EXPECT_EQ(lattice::backend_info().threads, 3);
  lattice::set_thread_count(before);
}
