#include "lattice/kernels/cpu/features/attention.h"

#include <algorithm>
#include <vector>

#include "lattice/kernels/cpu/base/caches.h"
#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/attention_runs.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/attention.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/attention_backward-inl.h"
#include "lattice/kernels/cpu/features/attention_forward-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// One task has about this many multiply-adds in each product.
constexpr int64_t kTaskWork = int64_t{1} << 22;
// Sums of one backward item, in bytes.
constexpr int64_t kItemBytes = int64_t{6} << 20;

// Pairs before each segment, where a bias or mask has one value per pair.
std::vector<int64_t> pairs_before(const Attention& a) {
  if (!a.bias && !a.mask) return {};
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
  // The number of queries in a chunk, such that copies of its queries and sums stay in the
  // second-level cache. A longer chunk copies keys and values less often, but there must be chunks
  // for all threads.
  const int64_t least = std::clamp<int64_t>(24576 / a.size, 2 * kTileRows, 12 * kTileRows),
                most = caches().second / 3 / (2 * padded_size(a.size) * 4),
                share = a.q_offsets[a.segments] * a.heads / (4 * thread_count());
  const int64_t chunk = std::clamp(share, least, std::max(least, most)) / kTileRows * kTileRows;
  int64_t longest = 0;
  for (int64_t s = 0; s < a.segments; ++s) longest = std::max(longest, x.queries(s));
  // Item i of a segment: head i / chunks, chunk i % chunks.
  const auto chunks = [&](int64_t s) { return (x.queries(s) + chunk - 1) / chunk; };
  const auto count = [&](int64_t s) { return a.heads * chunks(s); };
  const auto item = [&](int64_t s, int64_t i) {
    const int64_t q0 = i % chunks(s) * chunk;
    return ForwardItem{s, i / chunks(s), q0, std::min(chunk, x.queries(s) - q0)};
  };
  const auto work = [&](int64_t s, int64_t i) {
    return item(s, i).rows * (x.keys(s) + 1) * a.size;
  };
  std::vector<AttentionRun> runs;
  add_runs(a.segments, 0, kTaskWork, count, work, runs);
  parallel_for(static_cast<int64_t>(runs.size()), [&](int64_t run) {
    ForwardScratch scratch(a.size, std::min(chunk, longest));
    visit_float_type(a.storage, [&]<typename T>(T) {
      each_item(runs[static_cast<size_t>(run)], count, [&](int64_t s, int64_t i) {
        const auto [s_next, i_next] = item_after(a.segments, s, i, count);
        forward_item(x, item(s, i), item(s_next, i_next), static_cast<T*>(out), lse, scratch);
      });
    });
  });
}

// All work of the backward pass, in an order that depends on sizes only. A segment whose sums fit
// is one item per kv head; a longer one is cut into keys and, once more, into queries.
struct BackwardItems {
  const Context& x;
  const int64_t most = kItemBytes / 4 / padded_size(x.a.size), part = most / 4;

  bool whole(int64_t s) const { return x.queries(s) + 2 * x.keys(s) <= most; }
  int64_t parts(int64_t n) const { return (n + part - 1) / part; }
  int64_t count(int64_t s) const {  // per kv head
    return whole(s) ? 1 : parts(x.keys(s)) + parts(x.queries(s));
  }
  BackwardItem item(int64_t s, int64_t g, int64_t i) const {
    const int64_t n_q = x.queries(s), n_k = x.keys(s);
    if (whole(s)) return {s, g, 0, n_q, 0, n_k, true, true};
    if (const int64_t k0 = i * part; k0 < n_k)
      return {s, g, 0, n_q, k0, std::min(n_k, k0 + part), false, true};
    const int64_t q0 = (i - parts(n_k)) * part;
    return {s, g, q0, std::min(n_q, q0 + part), 0, n_k, true, false};
  }
};

void run_backward(const Attention& a, const AttentionGradients& given) {
  const std::vector<int64_t> pairs = pairs_before(a);
  const Context x{a, pairs.data(), TableReader(a.positions)};
  const BackwardItems items{x};
  TableSums table(a.heads, a.kv_heads, a.positions.size, given.dtable);
  // With a table, each kv head has runs of its own; otherwise item i belongs to kv head i /
  // items.count.
  const int64_t groups = table.wanted() ? 1 : a.kv_heads;
  const auto count = [&](int64_t s) { return groups * items.count(s); };
  const auto item = [&](int64_t g, int64_t s, int64_t i) {
    return items.item(s, g + i / items.count(s), i % items.count(s));
  };
  const auto work = [&](int64_t s, int64_t i) {
    const BackwardItem t = item(0, s, i);
    return (t.q1 - t.q0 + 1) * (t.k1 - t.k0 + 1) * a.size * (a.heads / a.kv_heads);
  };
  int64_t most = 0, queries = 0, keys = 0, total = 0;
  for (int64_t s = 0; s < a.segments; ++s)
    for (int64_t i = 0; i < items.count(s); ++i) {
      const BackwardItem t = items.item(s, 0, i);
      most = std::max(most, t.q1 - t.q0);
      if (t.of_queries) queries = std::max(queries, t.q1 - t.q0);
      if (t.of_keys) keys = std::max(keys, t.k1 - t.k0);
      total += work(s, i);
    }
  std::vector<AttentionRun> runs;
  if (table.wanted()) {
    const int64_t grain =
        table.tasks() == 1 ? total : std::max(kTaskWork, total / table.tasks() + 1);
    for (int64_t g = 0; g < a.kv_heads; ++g) add_runs(a.segments, g, grain, count, work, runs);
  } else {
    add_runs(a.segments, 0, kTaskWork, count, work, runs);
  }
  table.keep(static_cast<int64_t>(runs.size()));
  parallel_for(static_cast<int64_t>(runs.size()), [&](int64_t number) {
    BackwardScratch scratch(a.size, most, queries, keys);
    const AttentionRun& run = runs[static_cast<size_t>(number)];
    table.of_task(number, run.g, [&](double* sums) {
      visit_float_type(a.storage, [&]<typename T>(T) {
        each_item(run, count, [&](int64_t s, int64_t i) {
          const BackwardItem t = item(run.g, s, i);
          // In a segment that is cut, the items that own keys see every pair once.
          AttentionGradients gradients = given;
          if (!t.of_keys) gradients.dbias = nullptr;
          const auto [s_next, i_next] = item_after(a.segments, s, i, count);
          backward_item<T>(x, t, item(run.g, s_next, i_next), gradients, t.of_keys ? sums : nullptr,
                           scratch);
        });
      });
    });
  });
  table.finish(runs);
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
