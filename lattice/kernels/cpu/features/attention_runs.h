// Cuts the work of attention into tasks, and gives each task memory for its sums of the derivatives
// of a table.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

// One task: the items from item i of segment s up to, but not including, item i_end of segment
// s_end, for kv head g or for all heads.
struct AttentionRun {
  int64_t g, s, i, s_end, i_end;
};

// Appends runs whose work is at least `grain`. Segment s has count(s) items. The items are never
// stored as a list, because with segments of one row the list would be larger than the rows.
inline void add_runs(int64_t segments, int64_t g, int64_t grain, const auto& count,
                     const auto& work, std::vector<AttentionRun>& runs) {
  AttentionRun run{g, 0, 0, segments, 0};
  int64_t sum = 0;
  for (int64_t s = 0; s < segments; ++s)
    for (int64_t i = 0; i < count(s); ++i) {
      sum += work(s, i);
      if (sum < grain) continue;
      run.s_end = s, run.i_end = i + 1;
      runs.push_back(run);
      run = {g, s, i + 1, segments, 0};
      sum = 0;
    }
  if (sum > 0) runs.push_back(run);
}

// body(s, i) for all items of a run.
inline void each_item(const AttentionRun& run, const auto& count, const auto& body) {
  for (int64_t s = run.s; s < run.s_end || (s == run.s_end && run.i_end > 0); ++s) {
    const int64_t last = s == run.s_end ? run.i_end : count(s);
    for (int64_t i = s == run.s ? run.i : 0; i < last; ++i) body(s, i);
  }
}

// The item that comes after item i of segment s, in this run or the next; the last one comes after
// itself.
inline std::pair<int64_t, int64_t> item_after(int64_t segments, int64_t s, int64_t i,
                                              const auto& count) {
  if (i + 1 < count(s)) return {s, i + 1};
  for (int64_t next = s + 1; next < segments; ++next)
    if (count(next) > 0) return {next, 0};
  return {s, i};
}

// The sums of a table's derivatives, in float64. A task has items of one kv head and sums the rows
// of its heads. If the sums of several tasks per kv head fit into kBytes, they are stored and added
// in order. Otherwise a kv head has one task, which writes its sums.
class TableSums {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 20, kMostTasks = 64;

  // to: (heads, size), or null.
  TableSums(int64_t heads, int64_t kv_heads, int64_t size, float* to) : to_(to) {
    if (!to_) return;
    part_ = heads / kv_heads * size;
    tasks_ =
        std::clamp<int64_t>(kBytes / 8 / std::max<int64_t>(kv_heads * part_, 1), 1, kMostTasks);
    std::fill_n(to_, heads * size, 0.0f);
  }
  bool wanted() const { return to_ != nullptr; }
  // The most tasks per kv head.
  int64_t tasks() const { return tasks_; }
  void keep(int64_t runs) {
    if (!wanted() || tasks_ == 1) return;
    kept_ = Buffer<double>(runs * part_);
    std::fill(kept_.begin(), kept_.end(), 0.0);
  }
  // Calls body(sums of this task, or null).
  void of_task(int64_t run, int64_t g, const auto& body) {
    if (!wanted()) return body(static_cast<double*>(nullptr));
    if (tasks_ > 1) return body(kept_.data() + run * part_);
    Buffer<double> own(part_);
    std::fill(own.begin(), own.end(), 0.0);
    body(own.data());
    write(own.data(), g);
  }
  void finish(const std::vector<AttentionRun>& runs) {
    for (size_t r = 0, next = 0; !kept_.empty() && r < runs.size(); r = next) {
      double* sums = kept_.data() + static_cast<int64_t>(r) * part_;
      for (next = r + 1; next < runs.size() && runs[next].g == runs[r].g; ++next)
        for (int64_t e = 0; e < part_; ++e)
          sums[e] += kept_[static_cast<int64_t>(next) * part_ + e];
      write(sums, runs[r].g);
    }
  }

 private:
  void write(const double* sums, int64_t g) const {
    for (int64_t e = 0; e < part_; ++e) to_[g * part_ + e] = static_cast<float>(sums[e]);
  }
  float* to_;  // (heads, size), or null
  int64_t part_ = 0, tasks_ = 1;
  Buffer<double> kept_;
};

}  // namespace lattice::cpu
