// attention and its gradient on Metal: kernels/metal/{attention,attention_backward}.metal.
#include <mlx/ops.h>

#include <cmath>

#include "lattice/core/arrays.h"
#include "lattice/kernels/portable/attention_sizes.h"
#include "lattice/routes/attention.h"
#include "lattice/routes/kernel_call.h"

namespace lattice::routes {
namespace {

constexpr int kSpan = 32, kThreads = 256;  // of attention.metal
static_assert(kSpan == SegmentPairs::kBlock);

AttentionSizes sizes_of(const AttentionAsked& asked) {
  const Attend& a = asked.attend;
  AttentionSizes sizes{.heads = asked.q.shape(1),
                       .key_heads = asked.k.shape(1),
                       .head_size = asked.q.shape(2),
                       .axes = 0,
                       .bound = {},
                       .entries = 0,
                       .scale = a.scale};
  if (a.positions) {
    sizes.axes = static_cast<int>(a.positions->bounds.size());
    for (size_t i = 0; i < a.positions->bounds.size(); ++i) sizes.bound[i] = a.positions->bounds[i];
    sizes.entries = asked.bias->shape(1);
  }
  return sizes;
}

// One of the three kernels, with what they share: rows of q, k and v, terms of the logits, segments
// and sizes. There is one group per block of 32 rows and head.
struct AttendKernel : KernelCall {
  std::string variant, terms, slopes;

  AttendKernel(const AttentionAsked& asked, const std::string& function, int heads,
               mx::array SegmentPairs::Arrays::* blocks)
      : KernelCall(function, function == "attention_tile" ? "attention" : "attention_backward") {
    const Attend& a = asked.attend;
    const SegmentPairs::Arrays& kept = a.segments->arrays();
    const char* bias = !a.biased            ? "kNoBias"
                       : !a.positions       ? "kPairBias"
                       : a.positions->joint ? "kJointBias"
                                            : "kAxesBias";
    const std::string parts = std::to_string((asked.q.shape(2) + kSpan - 1) / kSpan);
    const auto flag = [](bool on) { return on ? ", true" : ", false"; };
    variant = function + "<" + parts + ", lattice::" + bias + flag(a.mask.has_value()) +
              flag(a.causal) + ">";
    call.name += "_" + parts + "_" + bias + (a.mask ? "_mask" : "") + (a.causal ? "_causal" : "");
    add("q", asked.q), add("k", asked.k), add("v", asked.v);
    add("q_offsets", kept.q_offsets), add("k_offsets", kept.k_offsets);
    add("blocks", kept.*blocks);
    if (asked.bias) add("bias", *asked.bias);
    if (a.positions) {
      add("of_queries", a.positions->of_queries);
      add("of_keys", a.positions->of_keys);
    }
    if (a.mask) add("mask", *a.mask);
    if (needs_pairs(a)) add("pairs", kept.pairs);
    // Arrays that are switched off are not read, so any pointer may stand for them.
    terms = std::string("lattice::attend_terms(") + (a.biased ? "bias, " : "q, ") +
            (a.positions ? "of_queries, of_keys, " : "q_offsets, q_offsets, ") +
            (a.mask ? "mask), " : "q_offsets), ") +
            "lattice::attend_segments(q_offsets, k_offsets, " +
            (needs_pairs(a) ? "pairs" : "q_offsets") + ", blocks), sizes, ";
    add_sizes("AttentionSizes", sizes_of(asked));
    call.grid = {kThreads, inputs[5].shape(0), heads};
    call.threadgroup = {kThreads, 1, 1};
  }
  static bool needs_pairs(const Attend& a) { return a.mask || (a.biased && !a.positions); }

  // What a gradient reads.
  void add_slopes(const mx::array& g, const mx::array& lse, const mx::array& delta) {
    add("g", g), add("lse", lse), add("delta", delta);
    slopes = "lattice::attend_slopes(g, lse, delta), ";
  }
  // variant(to, rows, slopes, terms, segments, sizes, memory{tiles}, place)
  graph::Arrays run(const std::string& to, const std::string& memory,
                    const std::vector<std::string>& tiles, mx::StreamOrDevice s) {
    std::string names;
    for (const std::string& tile : tiles) {
      call.shared.push_back({"float4", tile, "lattice::kSpan * lattice::kSpanPitch / 4"});
      names.append(names.empty() ? "" : ", ").append("lattice::floats(" + tile + ")");
    }
    enter(variant, to + ", lattice::attend_rows(q, k, v), " + slopes + terms +
                       "lattice::" + memory + "{" + names + "}, " + kThreadPlace);
    return KernelCall::run(s);
  }
};

}  // namespace

graph::Arrays attention_with_metal(const AttentionAsked& asked) {
  const Attend& a = asked.attend;
  const mx::array& q = asked.q;
  const int rows = q.shape(0), heads = q.shape(1);
  if (rows == 0) return {q, mx::zeros({0, heads}, mx::float32, asked.stream)};
  if (a.segments->n_keys() == 0)
    return {mx::zeros_like(q, asked.stream),
            mx::full({rows, heads}, INFINITY, mx::float32, asked.stream)};
  AttendKernel kernel(asked, "attention_tile", heads, &SegmentPairs::Arrays::q_blocks);
  kernel.add_output("out", {q.shape(), q.dtype()});
  kernel.add_output("lse", {{rows, heads}, mx::float32});
  return kernel.run("out, lse", "AttendMemory", {"left", "right", "weights"}, asked.stream);
}

graph::Arrays attention_vjp_with_metal(const AttentionVjpAsked& asked) {
  AttentionAsked forward = asked.forward;
  const mx::StreamOrDevice s = forward.stream = asked.stream;
  const Attend& a = forward.attend;
  if (a.segments->n_queries() == 0 || a.segments->n_keys() == 0) {
    graph::Arrays none;
    for (const mx::array& x : forward.inputs()) none.push_back(mx::zeros_like(x, s));
    return none;
  }
  const mx::array &q = forward.q, &k = forward.k, &v = forward.v, &g = asked.g;
  mx::array lse = asked.lse;
  if (lse.size() == 0) lse = attention_with_metal(forward)[1];
  const mx::array delta =
      sum_axis(mx::multiply(as_float32(g, s), as_float32(asked.out, s), s), -1, false, s);
  AttendKernel of_queries(forward, "attention_dq", q.shape(1), &SegmentPairs::Arrays::q_blocks);
  of_queries.add_slopes(g, lse, delta);
  of_queries.add_output("dq", {q.shape(), q.dtype()});
  if (forward.bias) of_queries.add_output("dbias", {forward.bias->shape(), mx::float32});
  // Without a bias the kernel gets dq in the place of dbias, which it does not touch.
  const graph::Arrays found = of_queries.run(
      forward.bias ? "lattice::query_slopes(dq, dbias)" : "lattice::query_slopes(dq, dq)",
      "AttendMemory", {"left", "right", "weights"}, s);
  AttendKernel of_keys(forward, "attention_dkv", k.shape(1), &SegmentPairs::Arrays::k_blocks);
  of_keys.add_slopes(g, lse, delta);
  of_keys.add_output("dk", {k.shape(), k.dtype()});
  of_keys.add_output("dv", {v.shape(), v.dtype()});
  const graph::Arrays keys_found = of_keys.run("lattice::key_slopes(dk, dv)", "KeyMemory",
                                               {"left", "right", "weights", "slopes"}, s);
  graph::Arrays grads = {found[0], keys_found[0], keys_found[1]};
  if (forward.bias) grads.push_back(found[1]);
  return grads;
}

}  // namespace lattice::routes
