#include "lattice/core/segment_pairs.h"

#include <utility>

namespace lattice {

SegmentPairs::Ptr SegmentPairs::create(cpu::Buffer<int32_t> q_offsets,
                                       cpu::Buffer<int32_t> k_offsets) {
  std::shared_ptr<SegmentPairs> made(new SegmentPairs);
  made->q_offsets_ = std::move(q_offsets);
  made->k_offsets_ = std::move(k_offsets);
  for (int64_t s = 0; s < made->n_segments(); ++s)
    made->n_pairs_ += made->queries(s) * made->keys(s);
  return made;
}

std::vector<SegmentPairs::Run> SegmentPairs::runs() const {
  std::vector<Run> found;
  int64_t pairs = 0;
  for (int64_t s = 0; s < n_segments(); ++s) {
    if (found.empty() || found.back().queries != queries(s) || found.back().keys != keys(s))
      found.push_back({s, 0, queries(s), keys(s), q_offsets_[s], k_offsets_[s], pairs});
    ++found.back().count;
    pairs += queries(s) * keys(s);
  }
  return found;
}

namespace {

mx::array integers(const std::vector<int32_t>& values, mx::Shape shape) {
  return new_array(values.data(), std::move(shape), mx::int32);
}

mx::array blocks_of(const cpu::Buffer<int32_t>& offsets) {
  std::vector<int32_t> blocks;
  for (int64_t s = 0; s + 1 < offsets.size(); ++s)
    for (int32_t first = 0; first < offsets[s + 1] - offsets[s]; first += SegmentPairs::kBlock)
      blocks.insert(blocks.end(), {static_cast<int32_t>(s), first});
  return integers(blocks, {static_cast<int>(blocks.size()) / 2, 2});
}

}  // namespace

const SegmentPairs::Arrays& SegmentPairs::arrays() const {
  std::call_once(once_, [&] {
    // Pairs are read where there is a bias or mask of pairs, whose size fits int32.
    std::vector<int32_t> pairs = {0};
    int64_t sum = 0;
    for (int64_t s = 0; s < n_segments(); ++s)
      pairs.push_back(static_cast<int32_t>(sum += queries(s) * keys(s)));
    const int borders = static_cast<int>(n_segments()) + 1;
    arrays_ = {new_array(q_offsets_.data(), {borders}, mx::int32),
               new_array(k_offsets_.data(), {borders}, mx::int32), integers(pairs, {borders}),
               blocks_of(q_offsets_), blocks_of(k_offsets_)};
  });
  return *arrays_;
}

std::string SegmentPairs::text() const {
  return std::to_string(n_segments()) + " segments, " + std::to_string(n_pairs()) +
         " pairs of rows";
}

}  // namespace lattice
