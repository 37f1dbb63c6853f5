#include "lattice/ops/attention.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <mutex>
#include <tuple>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/features/attention.h"
#include "lattice/ops/attention_rules.h"
#include "lattice/ops/check.h"
#include "lattice/ops/reduce_rows.h"
#include "lattice/routes/attention.h"

namespace lattice {
namespace {

using graph::Arrays;
constexpr const char* kName = "attention";
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

void check_heads(const mx::array& q, const mx::array& k, const mx::array& v) {
  for (const auto& [name, x] : {std::pair{"q", &q}, {"k", &k}, {"v", &v}}) {
    if (x->ndim() != 3)
      fail(kName,
           std::string(name) + " must have shape (rows, heads, D), got " + shape_text(x->shape()));
    check_float(kName, *x);
    if (x->dtype() != q.dtype())
      fail(kName, "q, k and v must have one dtype, got " + graph::dtype_name(q.dtype()) + " and " +
                      graph::dtype_name(x->dtype()));
  }
  const int size = q.shape(2);
  if (size < 1 || size > cpu::kMaxHeadSize)
    fail(kName, "q must have 1 to " + std::to_string(cpu::kMaxHeadSize) +
                    " channels per head, got " + shape_text(q.shape()));
  if (k.shape() != v.shape() || k.shape(2) != size)
    fail(kName, "k and v must have one shape (S, H_kv, " + std::to_string(size) + "), got " +
                    shape_text(k.shape()) + " and " + shape_text(v.shape()));
  if (k.shape(1) < 1 || q.shape(1) < 1 || q.shape(1) % k.shape(1) != 0)
    fail(kName, "the heads of q must be a multiple of the heads of k and v, got " +
                    std::to_string(q.shape(1)) + " and " + std::to_string(k.shape(1)));
}

SegmentPairs::Ptr checked_segments(const mx::array& q, const mx::array& k, const mx::array& offsets,
                                   const std::optional<mx::array>& k_offsets) {
  cpu::Buffer<int32_t> of_queries = checked_borders(offsets, q.shape(0), kName, "offsets");
  if (!k_offsets && k.shape(0) != q.shape(0))
    fail(kName, "k must have the " + std::to_string(q.shape(0)) + " rows of q, got " +
                    std::to_string(k.shape(0)) + "; give k_offsets where keys are other rows");
  cpu::Buffer<int32_t> of_keys = k_offsets
                                     ? checked_borders(*k_offsets, k.shape(0), kName, "k_offsets")
                                     : checked_borders(offsets, k.shape(0), kName, "offsets");
  if (of_keys.size() != of_queries.size())
    fail(kName, "k_offsets must have as many entries as offsets, " +
                    std::to_string(of_queries.size()) + ", got " + std::to_string(of_keys.size()));
  return SegmentPairs::create(std::move(of_queries), std::move(of_keys));
}

// The segments of borders that were given lately, so that the layers of a network that share a
// layout share what kernels read of it. An array is known by its identity, and is kept alive.
class RecentSegments {
 public:
  SegmentPairs::Ptr find(const mx::array& q, const mx::array& k, const mx::array& offsets,
                         const std::optional<mx::array>& k_offsets) {
    const Key key{offsets.id(), k_offsets ? k_offsets->id() : 0, q.shape(0), k.shape(0)};
    {
      const std::lock_guard lock(mutex_);
      for (const Entry& entry : entries_)
        if (entry.key == key) return entry.segments;
    }
    Entry made{key, offsets, k_offsets, checked_segments(q, k, offsets, k_offsets)};
    const std::lock_guard lock(mutex_);
    if (entries_.size() == kMostEntries) entries_.pop_front();
    entries_.push_back(made);
    return made.segments;
  }

 private:
  static constexpr size_t kMostEntries = 32;
  using Key = std::tuple<std::uintptr_t, std::uintptr_t, int, int>;
  struct Entry {
    Key key;
    mx::array offsets;
    std::optional<mx::array> k_offsets;
    SegmentPairs::Ptr segments;
  };
  std::mutex mutex_;
  std::deque<Entry> entries_;
};

RecentSegments& recent_segments() {
  static auto* recent = new RecentSegments;
  return *recent;
}

// Arrays of all pairs as one flat array. heads: leading axis of a segment, 0: none.
template <typename Given>
std::optional<mx::array> flat_pairs(const Given& given, const SegmentPairs& segments, int heads,
                                    const std::string& what, mx::StreamOrDevice s) {
  const int64_t per_pair = std::max(heads, 1), n = segments.n_segments(),
                total = per_pair * segments.n_pairs();
  const auto shape_of = [&](int64_t i) {
    mx::Shape shape = {static_cast<int>(segments.queries(i)), static_cast<int>(segments.keys(i))};
    if (heads) shape.insert(shape.begin(), heads);
    return shape;
  };
  if (const auto* list = std::get_if<std::vector<mx::array>>(&given)) {
    if (static_cast<int64_t>(list->size()) != n)
      fail(kName, what + " must have one array for each of " + std::to_string(n) +
                      " segments, got " + std::to_string(list->size()));
    Arrays parts;
    for (int64_t i = 0; i < n; ++i) {
      const mx::array& part = (*list)[static_cast<size_t>(i)];
      if (part.shape() != shape_of(i))
        fail(kName, what + "[" + std::to_string(i) + "] must have shape " +
                        shape_text(shape_of(i)) + ", got " + shape_text(part.shape()));
      parts.push_back(mx::reshape(part, {-1}, s));
    }
    if (parts.empty()) return mx::zeros({0}, heads ? mx::float32 : mx::bool_, s);
    return parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0, s);
  }
  const auto* one = std::get_if<mx::array>(&given);
  if (!one) return std::nullopt;
  bool fits = one->ndim() == 1 && static_cast<int64_t>(one->size()) == total;
  if (n == 1) fits = fits || one->shape() == shape_of(0);
  if (!fits && n > 0 && segments.runs().size() == 1) {
    mx::Shape all = shape_of(0);
    all.insert(all.begin(), static_cast<int>(n));
    fits = one->shape() == all;
  }
  if (!fits)
    fail(kName, what + " must be a list of arrays " +
                    (heads ? "(" + std::to_string(heads) + ", L_q, L_k)" : "(L_q, L_k)") +
                    ", one per segment, or all of them flat, (" + std::to_string(total) +
                    ",), got " + shape_text(one->shape()));
  return mx::reshape(*one, {-1}, s);
}

void check_table(const PositionBias& p, const SegmentPairs& segments, int heads) {
  if (p.table.shape(0) != heads)
    fail(kName, "the table of bias must have one row for each of " + std::to_string(heads) +
                    " heads, got " + shape_text(p.table.shape()));
  if (p.q_positions.shape(0) != segments.n_queries() || p.k_positions.shape(0) != segments.n_keys())
    fail(kName, "bias must have positions of " + std::to_string(segments.n_queries()) +
                    " queries and " + std::to_string(segments.n_keys()) + " keys, got " +
                    std::to_string(p.q_positions.shape(0)) + " and " +
                    std::to_string(p.k_positions.shape(0)));
}

// {out, log-sum-exp} in differentiable operations.
Arrays formula(const routes::Attend& a, const Arrays& in, mx::StreamOrDevice s) {
  return routes::attention_formula(a, in, s, [s](const mx::array& table, const mx::array& indices) {
    const auto rows = groups_of(evaluated(indices, kName, "positions"), table.shape(1));
    const mx::array entries = gather_rows(mx::transpose(table, s), rows, 0, s);
    mx::Shape shape = indices.shape();
    shape.insert(shape.begin(), table.shape(0));
    return mx::reshape(mx::transpose(entries, s), shape, s);
  });
}

}  // namespace

PositionBias::PositionBias(const mx::array& given, const mx::array& queries,
                           const std::optional<mx::array>& keys, const std::vector<int64_t>& limits,
                           bool all_axes)
    : table(given), q_positions(queries), k_positions(keys ? *keys : queries), joint(all_axes) {
  constexpr const char* kClass = "PositionBias";
  constexpr int kFar = 1 << 30;  // differences of positions fit int32
  const auto n_axes = static_cast<int>(limits.size());
  if (n_axes < 1 || n_axes > 3)
    fail(kClass, "bounds must have 1 to 3 entries, got " + std::to_string(n_axes));
  int64_t entries = joint ? 1 : 0;
  for (const int64_t bound : limits) {
    if (bound < 0 || bound > kFar)
      fail(kClass, "bounds must be in 0..2^30, got " + std::to_string(bound));
    entries = joint ? entries * (2 * bound + 1) : entries + 2 * bound + 1;
    if (entries > kMost) fail(kClass, "bounds ask for a table of more than 2^31 - 1 entries");
    bounds.push_back(static_cast<int>(bound));
  }
  check_float(kClass, table);
  if (table.ndim() != 2 || table.shape(1) != entries)
    fail(kClass, "table must have shape (H, " + std::to_string(entries) + "), got " +
                     shape_text(table.shape()));
  for (const auto& [name, x] :
       {std::pair{"q_positions", &q_positions}, {"k_positions", &k_positions}}) {
    if (!(x->ndim() == 2 && x->shape(1) == n_axes) && !(x->ndim() == 1 && n_axes == 1))
      fail(kClass, std::string(name) + " must have shape (rows, " + std::to_string(n_axes) +
                       "), got " + shape_text(x->shape()));
    if (!mx::issubdtype(x->dtype(), mx::integer))
      fail(kClass, std::string(name) + " must hold integers, got " + graph::dtype_name(x->dtype()));
    const int rows = x->shape(0);
    const mx::array values = checked_rows(mx::reshape(*x, {-1}), kFar, kClass,
                                          std::string(name) + ".flatten()", -int64_t{kFar} + 1);
    *x = new_array(rows ? values.data<int32_t>() : nullptr, {rows, n_axes}, mx::int32);
  }
}

mx::array attention(const mx::array& q, const mx::array& k, const mx::array& v,
                    const mx::array& offsets, const AttentionOptions& options,
                    mx::StreamOrDevice s) {
  check_heads(q, k, v);
  routes::Attend a;
  a.segments = recent_segments().find(q, k, offsets, options.k_offsets);
  const int heads = q.shape(1);
  a.scale = options.scale.value_or(1.0f / std::sqrt(static_cast<float>(q.shape(2))));
  if (!std::isfinite(a.scale)) fail(kName, "scale must be finite, got " + std::to_string(a.scale));
  const bool has_pairs = options.bias.index() == 1 || options.bias.index() == 2 ||
                         options.mask.index() == 1 || options.mask.index() == 2;
  if (has_pairs && heads * a.segments->n_pairs() > kMost)
    fail(kName, "bias and mask of " + std::to_string(a.segments->n_pairs()) + " pairs and " +
                    std::to_string(heads) +
                    " heads exceed 2^31 - 1 values; use shorter segments or a PositionBias");
  Arrays inputs = {q, k, v};
  if (const auto* table = std::get_if<PositionBias>(&options.bias)) {
    check_table(*table, *a.segments, heads);
    a.positions = {table->q_positions, table->k_positions, table->bounds, table->joint};
    inputs.push_back(as_float32(table->table, s));
  } else if (const auto bias = flat_pairs(options.bias, *a.segments, heads, "bias", s)) {
    check_float(kName, *bias);
    inputs.push_back(as_float32(*bias, s));
  }
  a.biased = inputs.size() == 4;
  if (const auto* text = std::get_if<std::string>(&options.mask)) {
    if (*text != "causal")
      fail(kName, "mask must be \"causal\" or hold booleans, got '" + *text + "'");
    a.causal = true;
  } else if (const auto mask = flat_pairs(options.mask, *a.segments, 0, "mask", s)) {
    if (mask->dtype() != mx::bool_)
      fail(kName, "mask must hold booleans, got " + graph::dtype_name(mask->dtype()) +
                      "; add numbers to the logits with bias");
    a.mask = mask;
  }
  return attend(inputs,
                {[=](const Arrays& in) {
                   return routes::run(routes::attention_rows(), routes::attention_asked(a, in, s));
                 },
                 [=](const Arrays& in) {
                   return routes::run(routes::attention_vjp_rows(),
                                      routes::attention_vjp_asked(a, in, s));
                 },
                 [=](const Arrays& in) { return formula(a, in, s); }},
                s);
}

}  // namespace lattice
