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

std::string SegmentPairs::text() const {
  return std::to_string(n_segments()) + " segments, " + std::to_string(n_pairs()) +
         " pairs of rows";
}

}  // namespace lattice
