#include "lattice/core/row_groups.h"

#include <algorithm>
#include <numeric>

namespace lattice {

RowGroups::Ptr RowGroups::create(cpu::Buffer<int32_t> group_of, int64_t n_groups) {
  std::shared_ptr<RowGroups> groups(new RowGroups);
  groups->group_of_ = std::move(group_of);
  groups->n_groups_ = n_groups;
  return groups;
}

RowGroups::Ptr RowGroups::contiguous(cpu::Buffer<int32_t> offsets) {
  std::shared_ptr<RowGroups> groups(new RowGroups);
  groups->n_groups_ = offsets.size() - 1;
  groups->group_of_ = cpu::Buffer<int32_t>(offsets[groups->n_groups_]);
  for (int64_t g = 0; g < groups->n_groups_; ++g)
    std::fill(groups->group_of_.begin() + offsets[g], groups->group_of_.begin() + offsets[g + 1],
              static_cast<int32_t>(g));
  groups->offsets_ = std::move(offsets);
  return groups;
}

const cpu::Segments& RowGroups::segments() const {
  std::call_once(once_, [&] {
    if (!offsets_.empty()) {
      segments_ = {n_groups_, offsets_.data(), nullptr, nullptr, nullptr};
      return;
    }
    const int64_t n = n_rows();
    offsets_ = cpu::Buffer<int32_t>(n_groups_ + 1);
    std::fill(offsets_.begin(), offsets_.end(), 0);
    bool sorted = true;
    int32_t before = 0;
    for (const int32_t g : group_of_) {
      sorted = sorted && g >= before;
      before = g;
      if (g >= 0) ++offsets_[g + 1];
    }
    std::partial_sum(offsets_.begin(), offsets_.end(), offsets_.begin());
    if (!sorted) {
      rows_ = cpu::Buffer<int32_t>(offsets_[n_groups_]);
      cpu::Buffer<int32_t> cursor(n_groups_);
      std::copy_n(offsets_.begin(), n_groups_, cursor.begin());
      for (int64_t r = 0; r < n; ++r)
        if (const int32_t g = group_of_[r]; g >= 0) rows_[cursor[g]++] = static_cast<int32_t>(r);
    }
    segments_ = {n_groups_, offsets_.data(), rows_.data(), nullptr, nullptr};
  });
  return segments_;
}

const RowGroups::Arrays& RowGroups::arrays() const {
  std::call_once(arrays_once_, [&] {
    const cpu::Segments& s = segments();
    const auto column = [](const int32_t* values, int64_t n) {
      return new_array(values, {static_cast<int>(n)}, mx::int32);
    };
    Arrays made{column(s.offsets, s.n + 1), column(group_of_.data(), n_rows()), {}, {}};
    if (s.rows) made.rows = column(s.rows, s.offsets[s.n]);
    made.pieces = cut_segments(made.offsets);
    arrays_ = std::move(made);
  });
  return *arrays_;
}

cpu::RelationLists RowGroups::lists() const {
  const cpu::Segments& s = segments();
  const int64_t n = s.offsets[s.n];
  auto ends = std::make_shared<cpu::Buffer<int32_t>>(2 * n);
  int32_t* in = ends->data();
  int32_t* out = in + n;
  for (int64_t g = 0; g < s.n; ++g)
    for (int64_t e = s.offsets[g]; e < s.offsets[g + 1]; ++e) {
      in[e] = s.rows ? s.rows[e] : static_cast<int32_t>(e);
      out[e] = static_cast<int32_t>(g);
    }
  cpu::RelationLists lists;
  lists.n_in = n_rows();
  lists.n_out = n_groups_;
  lists.n_edges = n;
  lists.monotone = s.rows == nullptr;
  lists.out_once = false;
  lists.lists = {{in, out, n}};
  lists.storage = {std::move(ends)};
  return lists;
}

mx::array RowGroups::counts() const {
  const cpu::Segments& s = segments();
  cpu::Buffer<float> counts(n_groups_);
  for (int64_t g = 0; g < n_groups_; ++g)
    counts[g] = static_cast<float>(s.offsets[g + 1] - s.offsets[g]);
  return adopt(std::move(counts), {static_cast<int>(n_groups_), 1});
}

}  // namespace lattice
