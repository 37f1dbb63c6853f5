#include "lattice/kernels/cpu/features/attention.h"

#include <algorithm>
#include <vector>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/attention.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/attention_backward-inl.h"
#include "lattice/kernels/cpu/features/attention_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Work of one task is about this many multiply-adds of one product.
constexpr int64_t kTaskWork = int64_t{1} << 22;
// Sums of one backward item, in bytes.
constexpr int64_t kItemBytes = int64_t{6} << 20;
// Tasks that keep a table of their own.
constexpr int64_t kMaxTables = 64;

// Runs body(first, last) on runs of items of about `work` each.
template <class Item, class F>
void each_run(const std::vector<Item>& items, int64_t grain, const F& work, const auto& body) {
  std::vector<size_t> ends;
  int64_t sum = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    sum += work(items[i]);
    if (sum < grain && i + 1 < items.size()) continue;
    ends.push_back(i + 1);
    sum = 0;
  }
  parallel_for(static_cast<int64_t>(ends.size()), [&](int64_t run) {
    const size_t r = static_cast<size_t>(run);
    body(run, r == 0 ? 0 : ends[r - 1], ends[r]);
  });
}

std::vector<int64_t> pairs_before(const Attention& a) {
  std::vector<int64_t> pairs(static_cast<size_t>(a.segments) + 1);
  for (int64_t s = 0; s < a.segments; ++s)
    pairs[static_cast<size_t>(s + 1)] =
        pairs[static_cast<size_t>(s)] + (int64_t{a.q_offsets[s + 1]} - a.q_offsets[s]) *
                                            (int64_t{a.k_offsets[s + 1]} - a.k_offsets[s]);
  return pairs;
}

void run_forward(const Attention& a, void* out, float* lse) {
  const std::vector<int64_t> pairs = pairs_before(a);
  const Context x{a, pairs.data(), TableReader(a.positions)};
  // Copies of a chunk's queries and sums stay in the second-level cache.
  const int64_t chunk =
      std::clamp<int64_t>(24576 / a.size, 2 * kTileRows, 12 * kTileRows) / kTileRows * kTileRows;
  struct Item {
    int64_t s, head, q0;
  };
  std::vector<Item> items;
  int64_t longest = 0;
  for (int64_t s = 0; s < a.segments; ++s) {
    longest = std::max(longest, x.queries(s));
    for (int64_t head = 0; head < a.heads; ++head)
      for (int64_t q0 = 0; q0 < x.queries(s); q0 += chunk) items.push_back({s, head, q0});
  }
  const auto rows = [&](const Item& i) { return std::min(chunk, x.queries(i.s) - i.q0); };
  const auto work = [&](const Item& i) { return rows(i) * (x.keys(i.s) + 1) * a.size; };
  each_run(items, kTaskWork, work, [&](int64_t, size_t first, size_t last) {
    ForwardScratch scratch(a.size, std::min(chunk, longest));
    visit_float_type(a.storage, [&]<typename T>(T) {
      for (size_t i = first; i < last; ++i)
        forward_chunk(x, items[i].s, items[i].head, items[i].q0, rows(items[i]),
                      static_cast<T*>(out), lse, scratch);
    });
  });
}

// All work of the backward pass, in an order that depends on sizes only. A segment whose sums fit
// is one item per kv head; a longer one is cut into keys and, once more, into queries.
std::vector<BackwardItem> backward_items(const Context& x) {
  const Attention& a = x.a;
  const int64_t most = kItemBytes / 4 / padded_size(a.size), part = most / 4;
  std::vector<BackwardItem> items;
  for (int64_t s = 0; s < a.segments; ++s) {
    const int64_t n_q = x.queries(s), n_k = x.keys(s);
    for (int64_t g = 0; g < a.kv_heads; ++g) {
      if (n_q + 2 * n_k <= most) {
        items.push_back({s, g, 0, n_q, 0, n_k, true, true});
        continue;
      }
      for (int64_t k0 = 0; k0 < n_k; k0 += part)
        items.push_back({s, g, 0, n_q, k0, std::min(n_k, k0 + part), false, true});
      for (int64_t q0 = 0; q0 < n_q; q0 += part)
        items.push_back({s, g, q0, std::min(n_q, q0 + part), 0, n_k, true, false});
    }
  }
  return items;
}

void run_backward(const Attention& a, const AttentionGradients& given) {
  const std::vector<int64_t> pairs = pairs_before(a);
  const Context x{a, pairs.data(), TableReader(a.positions)};
  const std::vector<BackwardItem> items = backward_items(x);
  const auto work = [&](const BackwardItem& i) {
    return (i.q1 - i.q0 + 1) * (i.k1 - i.k0 + 1) * a.size * (a.heads / a.kv_heads);
  };
  int64_t grain = kTaskWork, queries = 0, keys = 0;
  for (const BackwardItem& i : items) {
    if (i.of_queries) queries = std::max(queries, i.q1 - i.q0);
    if (i.of_keys) keys = std::max(keys, i.k1 - i.k0);
  }
  const int64_t entries = given.dtable ? a.heads * a.positions.size : 0;
  int64_t tables = 0;
  if (given.dtable) {
    int64_t total = 0;
    for (const BackwardItem& i : items) total += work(i);
    grain = std::max(grain, total / kMaxTables + 1);
    tables = std::min<int64_t>(kMaxTables + 1, static_cast<int64_t>(items.size()));
  }
  Buffer<double> partial(tables * entries);
  std::fill(partial.begin(), partial.end(), 0.0);
  each_run(items, grain, work, [&](int64_t run, size_t first, size_t last) {
    BackwardScratch scratch(a.size, queries, keys);
    visit_float_type(a.storage, [&]<typename T>(T) {
      for (size_t i = first; i < last; ++i) {
        // Of a segment that is cut, the items of the keys see every pair once.
        AttentionGradients gradients = given;
        if (!items[i].of_keys) gradients.dbias = nullptr;
        double* table = given.dtable && items[i].of_keys ? partial.data() + run * entries : nullptr;
        backward_item<T>(x, items[i], gradients, table, scratch);
      }
    });
  });
  for (int64_t e = 0; e < entries; ++e) {
    double sum = 0;
    for (int64_t t = 0; t < tables; ++t) sum += partial[t * entries + e];
    given.dtable[e] = static_cast<float>(sum);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
namespace {
HWY_EXPORT(run_forward);
HWY_EXPORT(run_backward);
}  // namespace

void attention(const Attention& a, void* out, float* lse) {
  HWY_DYNAMIC_DISPATCH(run_forward)(a, out, lse);
}

void attention_gradients(const Attention& a, const AttentionGradients& gradients) {
  HWY_DYNAMIC_DISPATCH(run_backward)(a, gradients);
}

}  // namespace lattice::cpu
#endif
