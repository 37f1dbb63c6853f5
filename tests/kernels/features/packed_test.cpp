// Blocks of packed weights against the formula, one code at a time, on every instruction set. A
// convolution with packed weights has the bits of the dense kernel.
#include "lattice/kernels/cpu/features/packed.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/values.h"

namespace lattice::cpu {
namespace {

using support::float_type_of;
using support::on_each_target;

// Random codes and scales in exactly sized arrays, and the dense weight W[k][c][m] that they stand
// for.
template <typename T>
struct Packed {
  std::vector<uint32_t> codes;
  std::vector<T> scales, biases, dense;
  PackedWeight weight;

  Packed(int64_t n_k, int64_t in, int64_t out, int64_t groups, int64_t bits, int64_t group_size) {
    support::Random random(static_cast<uint64_t>(in * 31 + out));
    const int64_t n_groups = (in + group_size - 1) / group_size,
                  words = n_groups * group_size * bits / 32;
    codes.resize(static_cast<size_t>(n_k * words * out));
    for (uint32_t& v : codes) v = static_cast<uint32_t>(random.bits());
    for (std::vector<T>* v : {&scales, &biases})
      for (int64_t i = 0; i < n_k * n_groups * out; ++i)
        v->push_back(narrow<T>(static_cast<float>(random.uniform(-1, 1))));
    dense.resize(static_cast<size_t>(n_k * in * out));
    const auto place = [&](int64_t k, int64_t m, int64_t i, int64_t n) {
      return static_cast<size_t>(n_k == 1 ? m * n + i : (k * n + i) * out + m);
    };
    for (int64_t k = 0; k < n_k; ++k)
      for (int64_t c = 0; c < in; ++c)
        for (int64_t m = 0; m < out; ++m) {
          const uint32_t word = codes[place(k, m, c * bits / 32, words)];
          const auto code = static_cast<float>(word >> (c * bits % 32) & ((1u << bits) - 1));
          const size_t group = place(k, m, c / group_size, n_groups);
          const float product = widen(scales[group]) * code;
          dense[static_cast<size_t>((k * in + c) * out + m)] =
              narrow<T>(product + widen(biases[group]));
        }
    weight.shape = {in * groups, out, groups, float_type_of<T>()};
    weight.codes = codes.data();
    weight.scales = scales.data();
    weight.biases = biases.data();
    weight.bits = bits;
    weight.group_size = group_size;
    weight.n_k = n_k;
  }
  // W^T of the groups: row m of a group, column c of all groups.
  float turned(int64_t k, int64_t row, int64_t column) const {
    const int64_t in = weight.shape.in_group(), out = weight.shape.c_out,
                  m = column / in * weight.shape.out_group() + row;
    return widen(dense[static_cast<size_t>((k * in + column % in) * out + m)]);
  }
};

template <typename T>
void check_blocks(int64_t n_k, int64_t in, int64_t out, int64_t groups, int64_t bits,
                  int64_t group_size) {
  SCOPED_TRACE(std::to_string(n_k) + " x " + std::to_string(in) + " -> " + std::to_string(out) +
               " / " + std::to_string(groups) + ", " + std::to_string(bits) + " bits");
  Packed<T> p(n_k, in, out, groups, bits, group_size);
  for (const bool transposed : {false, true}) {
    p.weight.transposed = transposed;
    const int64_t rows = transposed ? out / groups : in,
                  group_columns = transposed ? in : out / groups;
    for (int64_t k = 0; k < n_k; ++k)
      for (int64_t group = 0; group < groups; ++group)
        for (int64_t first = 0; first < group_columns; first += 32) {
          const int64_t columns = std::min<int64_t>(32, group_columns - first),
                        column = group * group_columns + first;
          const int64_t width = (columns + 15) / 16 * 16;
          std::vector<float> block(static_cast<size_t>(rows * width), -1.0f);
          p.weight.fill(k, column, columns, width, block.data());
          for (int64_t r = 0; r < rows; ++r)
            for (int64_t j = 0; j < width; ++j) {
              const size_t plain = static_cast<size_t>((k * in + r) * out + column + j);
              const float expected = j >= columns ? 0.0f
                                     : transposed ? p.turned(k, r, column + j)
                                                  : widen(p.dense[plain]);
              ASSERT_EQ(block[static_cast<size_t>(r * width + j)], expected)
                  << "row " << r << " column " << column + j;
            }
        }
  }
}

template <typename T>
void check_all_blocks() {
  for (const int64_t bits : {4, 8})
    for (const int64_t n_k : {1, 3}) {
      check_blocks<T>(n_k, 64, 64, 1, bits, 64);
      check_blocks<T>(n_k, 33, 17, 1, bits, 32);
      check_blocks<T>(n_k, 1, 1, 1, bits, 128);
      check_blocks<T>(n_k, 5, 70, 1, bits, 32);
      check_blocks<T>(n_k, 140, 9, 1, bits, 128);
      check_blocks<T>(n_k, 35, 8, 4, bits, 32);
      check_blocks<T>(n_k, 1, 8, 4, bits, 32);
    }
}

TEST(Packed, BlocksAreTheFormula) {
  on_each_target([] {
    check_all_blocks<float>();
    check_all_blocks<half_t>();
    check_all_blocks<bfloat_t>();
  });
}

// Any edges between 400 and 700 rows.
RelationLists edges() {
  support::Random random(3);
  std::vector<int32_t> in, out, k;
  for (int64_t e = 0; e < 3000; ++e) {
    in.push_back(static_cast<int32_t>(random.below(400)));
    out.push_back(static_cast<int32_t>(random.below(700)));
    k.push_back(static_cast<int32_t>(random.below(3)));
  }
  return lists_of_edges(in.data(), out.data(), k.data(), 3000, 400, 700, 3);
}

template <typename T>
void check_conv(const RelationLists& lists, int64_t c_in, int64_t c_out, int64_t groups,
                bool transposed) {
  SCOPED_TRACE(std::to_string(c_in) + " -> " + std::to_string(c_out) + " / " +
               std::to_string(groups));
  const int64_t in = (transposed ? c_out : c_in) / groups, out = transposed ? c_in : c_out;
  Packed<T> p(3, in, out, groups, 4, 32);
  p.weight.transposed = transposed;
  DenseWeight dense(p.weight.shape, p.dense.data());
  if (transposed) {
    dense.shape = dense.shape.reversed();
    std::swap(dense.stride_in, dense.stride_out);
  }
  support::Random random(5);
  std::vector<T> x;
  for (int64_t i = 0; i < lists.n_in * c_in; ++i)
    x.push_back(narrow<T>(static_cast<float>(random.uniform(-1, 1))));
  const TileBounds bounds = tile_bounds(lists, conv_tile(lists));
  const auto run = [&](const WeightSource& weight) {
    std::vector<T> y(static_cast<size_t>(lists.n_out * c_out));
    conv(lists, bounds,
         {{c_in, c_out, groups, float_type_of<T>()}, x.data(), &weight, nullptr, y.data()});
    std::vector<float> wide;
    for (const T v : y) wide.push_back(widen(v));
    return wide;
  };
  const std::vector<float> expected = run(dense);
  const int before = thread_count();
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    EXPECT_EQ(run(p.weight), expected) << threads << " threads";
  }
  set_thread_count(before);
}

TEST(Packed, ConvolutionHasTheBitsOfTheDenseKernel) {
  const RelationLists lists = edges();
  on_each_target([&] {
    for (const bool transposed : {false, true}) {
      check_conv<float>(lists, 64, 64, 1, transposed);
      check_conv<float>(lists, 33, 130, 1, transposed);
      check_conv<half_t>(lists, 17, 5, 1, transposed);
      check_conv<bfloat_t>(lists, 40, 48, 1, transposed);
      check_conv<float>(lists, 24, 24, 24, transposed);
      check_conv<float>(lists, 12, 8, 4, transposed);
    }
  });
}

}  // namespace
}  // namespace lattice::cpu
