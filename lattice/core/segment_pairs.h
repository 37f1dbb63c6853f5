// The pairs of rows that attend to each other: segment s joins every row q_offsets[s] ..
// q_offsets[s + 1] of the queries with every row k_offsets[s] .. k_offsets[s + 1] of the keys.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "lattice/core/arrays.h"

namespace lattice {

// Computed when it is made, immutable, and shared by the nodes that use it.
class SegmentPairs {
 public:
  using Ptr = std::shared_ptr<const SegmentPairs>;
  // Borders that the caller has checked (checked_borders); both have one length, at least 1.
  static Ptr create(cpu::Buffer<int32_t> q_offsets, cpu::Buffer<int32_t> k_offsets);

  int64_t n_segments() const { return q_offsets_.size() - 1; }
  int64_t n_queries() const { return q_offsets_[n_segments()]; }
  int64_t n_keys() const { return k_offsets_[n_segments()]; }
  int64_t n_pairs() const { return n_pairs_; }
  const int32_t* q_offsets() const { return q_offsets_.data(); }
  const int32_t* k_offsets() const { return k_offsets_.data(); }
  int64_t queries(int64_t s) const { return int64_t{q_offsets_[s + 1]} - q_offsets_[s]; }
  int64_t keys(int64_t s) const { return int64_t{k_offsets_[s + 1]} - k_offsets_[s]; }

  // Segments first .. first + count, all of them with as many queries and keys.
  struct Run {
    int64_t first, count, queries, keys;
    int64_t q0, k0, pair0;  // rows and pairs before the run
  };
  std::vector<Run> runs() const;

  // The arrays that kernels of a GPU read, made once: borders, pairs before each segment, and for
  // both ends (n, 2) segment and first row of each kBlock rows.
  static constexpr int kBlock = 32;
  struct Arrays {
    mx::array q_offsets, k_offsets, pairs, q_blocks, k_blocks;
  };
  const Arrays& arrays() const;

  std::string text() const;  // "7 segments, 1200 pairs of rows"

 private:
  SegmentPairs() = default;
  cpu::Buffer<int32_t> q_offsets_, k_offsets_;
  int64_t n_pairs_ = 0;
  mutable std::once_flag once_;
  mutable std::optional<Arrays> arrays_;
};

}  // namespace lattice
