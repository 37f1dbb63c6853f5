#include "lattice/ops/row_groups.h"

#include <mlx/ops.h>

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "lattice/graph/differentiable.h"
#include "lattice/graph/dtype.h"
#include "lattice/ops/routes.h"

namespace lattice {
namespace {

void check(const char* op, const mx::array& x, int64_t rows) {
  if (x.ndim() != 2 || x.shape(0) != rows)
    throw std::invalid_argument("[" + std::string(op) + "] features must have shape (" +
                                std::to_string(rows) + ", C), got " + shape_text(x.shape()));
  graph::visit_float(x.dtype(), [](auto) {}, op);
}

Call make_call(const char* operation, const mx::array& x, const RowGroups::Ptr& groups,
               mx::StreamOrDevice s) {
  Call call;
  call.operation = operation;
  call.inputs = {x};
  call.c_in = call.c_out = x.shape(1);
  call.dtype = x.dtype();
  call.groups_of_rows = groups;
  call.stream = s;
  return call;
}

const char* mode_name(Reduction r) {
  static constexpr const char* kNames[] = {"sum", "mean", "max", "min"};
  return kNames[static_cast<int>(r)];
}

mx::array wide(const mx::array& a, mx::StreamOrDevice s) { return mx::astype(a, mx::float32, s); }

// (G, C) int32: the smallest row of each group that has the maximum or minimum, -1 where there is
// none.
mx::array argmax_rows(const mx::array& x, const RowGroups::Ptr& groups, Reduction kind,
                      mx::StreamOrDevice s) {
  Call call = make_call("argmax", x, groups, s);
  call.mode = mode_name(kind);
  return run(call);
}

// The gradient of max or min: dy to the rows that equal their group's value.
mx::array max_gradient(const mx::array& x, const mx::array& y, const mx::array& dy,
                       const RowGroups::Ptr& groups, Reduction kind, Ties ties,
                       mx::StreamOrDevice s) {
  if (ties == Ties::first)
    return scatter_by_index(dy, argmax_rows(x, groups, kind, s), x.shape(0), s);
  const mx::array same = mx::equal(x, gather_rows(y, groups, 0, s), s);
  mx::array part = wide(dy, s);
  if (ties == Ties::split) {
    const mx::array count = reduce_rows(wide(same, s), groups, Reduction::sum, s);
    part = mx::divide(part, mx::maximum(count, mx::array(1.0f), s), s);
  }
  return mx::astype(mx::where(same, gather_rows(part, groups, 0, s), mx::array(0.0f), s), x.dtype(),
                    s);
}

}  // namespace

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

Reduction parse_reduction(std::string_view name, std::string_view operation,
                          std::string_view argument) {
  if (name == "sum") return Reduction::sum;
  if (name == "mean" || name == "avg") return Reduction::mean;
  if (name == "max") return Reduction::max;
  throw std::invalid_argument("[" + std::string(operation) + "] " + std::string(argument) +
                              " must be sum, mean (avg) or max, got '" + std::string(name) + "'");
}

mx::array reduce_rows(const mx::array& x, const RowGroups::Ptr& groups, Reduction reduction,
                      mx::StreamOrDevice s, Ties ties) {
  const bool extreme = reduction == Reduction::max || reduction == Reduction::min;
  check("reduce_rows", x, groups->n_rows());
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    Call call = make_call("segments", in[0], groups, s);
    call.mode = mode_name(reduction);
    return {run(call)};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays& y) -> graph::Arrays {
    if (reduction == Reduction::sum) return {gather_rows(ct[0], groups, 0, s)};
    if (extreme)
      return {max_gradient(in[0], mx::stop_gradient(y[0], s), ct[0], groups, reduction, ties, s)};
    const mx::array counts = mx::maximum(groups->counts(), mx::array(1.0f), s);
    return {gather_rows(mx::astype(mx::divide(wide(ct[0], s), counts, s), in[0].dtype(), s), groups,
                        0, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    if (!extreme) return {reduce_rows(t[0], groups, reduction, s)};
    return {gather_by_index(t[0], argmax_rows(in[0], groups, reduction, s), s)};
  };
  return graph::differentiable({x}, forward, vjp, jvp)[0];
}

mx::array gather_rows(const mx::array& y, const RowGroups::Ptr& groups, float fill,
                      mx::StreamOrDevice s) {
  check("gather_rows", y, groups->n_groups());
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    Call call = make_call("gather", in[0], groups, s);
    call.fill = fill;
    return {run(call)};
  };
  const auto vjp = [=](const graph::Arrays&, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {reduce_rows(ct[0], groups, Reduction::sum, s)};
  };
  const auto jvp = [=](const graph::Arrays&, const graph::Arrays& t) -> graph::Arrays {
    return {gather_rows(t[0], groups, 0, s)};
  };
  return graph::differentiable({y}, forward, vjp, jvp)[0];
}

mx::array gather_by_index(const mx::array& t, const mx::array& rows, mx::StreamOrDevice s) {
  if (t.size() == 0) return mx::zeros(rows.shape(), t.dtype(), s);
  const mx::array found = mx::greater_equal(rows, mx::array(0), s);
  const mx::array taken = mx::take_along_axis(t, mx::maximum(rows, mx::array(0), s), 0, s);
  return mx::where(found, taken, mx::zeros({1}, t.dtype(), s), s);
}

mx::array scatter_by_index(const mx::array& g, const mx::array& rows, int n, mx::StreamOrDevice s) {
  const mx::array zeros = mx::zeros({n, g.shape(1)}, mx::float32, s);
  if (zeros.size() == 0 || g.size() == 0) return mx::astype(zeros, g.dtype(), s);
  const mx::array found = mx::greater_equal(rows, mx::array(0), s);
  const mx::array given = mx::where(found, wide(g, s), mx::array(0.0f), s);
  return mx::astype(mx::scatter_add_axis(zeros, mx::maximum(rows, mx::array(0), s), given, 0, s),
                    g.dtype(), s);
}

}  // namespace lattice
