// attention and its gradient on Metal: kernels/metal/{attention,attention_backward}.metal.
#include <mlx/ops.h>

#include <cmath>

#include "lattice/kernels/portable/attention_sizes.h"
#include "lattice/routes/attention.h"
#include "lattice/routes/kernel_call.h"

namespace lattice {
namespace {

constexpr int kSpan = 32, kThreads = 256;  // of attention.metal

mx::array integers(const std::vector<int32_t>& values, mx::Shape shape) {
  return mx::array(values.data(), std::move(shape), mx::int32);
}

// (n, 2): segment and first row of each 32 rows of the segments that offsets gives.
mx::array blocks_of(const int32_t* offsets, int64_t n_segments) {
  std::vector<int32_t> blocks;
  for (int64_t s = 0; s < n_segments; ++s)
    for (int32_t first = 0; first < offsets[s + 1] - offsets[s]; first += kSpan)
      blocks.insert(blocks.end(), {static_cast<int32_t>(s), first});
  return integers(blocks, {static_cast<int>(blocks.size()) / 2, 2});
}

mx::array offsets_array(const int32_t* offsets, int64_t n_segments) {
  return new_array(offsets, {static_cast<int>(n_segments) + 1}, mx::int32);
}

// Pairs of rows before each segment. They are read where there is a bias or mask of pairs, whose
// size fits int32.
mx::array pairs_array(const SegmentPairs& segments) {
  std::vector<int32_t> pairs = {0};
  int64_t sum = 0;
  for (int64_t s = 0; s < segments.n_segments(); ++s)
    pairs.push_back(static_cast<int32_t>(sum += segments.queries(s) * segments.keys(s)));
  return integers(pairs, {static_cast<int>(pairs.size())});
}

AttentionSizes sizes_of(const Call& call) {
  const Attend& a = call.get<Attend>();
  const graph::Arrays& in = call.inputs;
  AttentionSizes sizes{.heads = in[0].shape(1),
                       .key_heads = in[1].shape(1),
                       .head_size = in[0].shape(2),
                       .axes = 0,
                       .bound = {},
                       .entries = 0,
                       .scale = a.scale};
  if (a.positions) {
    sizes.axes = static_cast<int>(a.positions->bounds.size());
    for (size_t i = 0; i < a.positions->bounds.size(); ++i) sizes.bound[i] = a.positions->bounds[i];
    sizes.entries = in[3].shape(1);
  }
  return sizes;
}

// One of the three kernels, with what they share: rows of q, k and v, terms of the logits, segments
// and sizes. There is one group per block of 32 rows and head.
struct AttendKernel : KernelCall {
  std::string variant, terms, slopes;

  AttendKernel(const Call& c, const std::string& function, const int32_t* block_offsets, int heads)
      : KernelCall(function, function == "attention_tile" ? "attention" : "attention_backward") {
    const Attend& a = c.get<Attend>();
    const graph::Arrays& in = c.inputs;
    const int64_t n = a.segments->n_segments();
    const char* bias = !a.biased            ? "kNoBias"
                       : !a.positions       ? "kPairBias"
                       : a.positions->joint ? "kJointBias"
                                            : "kAxesBias";
    const std::string parts = std::to_string((in[0].shape(2) + kSpan - 1) / kSpan);
    const auto flag = [](bool on) { return on ? ", true" : ", false"; };
    variant = function + "<" + parts + ", lattice::" + bias + flag(a.mask.has_value()) +
              flag(a.causal) + ">";
    call.name += "_" + parts + "_" + bias + (a.mask ? "_mask" : "") + (a.causal ? "_causal" : "");
    add("q", in[0]), add("k", in[1]), add("v", in[2]);
    add("q_offsets", offsets_array(a.segments->q_offsets(), n));
    add("k_offsets", offsets_array(a.segments->k_offsets(), n));
    add("blocks", blocks_of(block_offsets, n));
    if (a.biased) add("bias", in[3]);
    if (a.positions) {
      add("of_queries", a.positions->of_queries);
      add("of_keys", a.positions->of_keys);
    }
    if (a.mask) add("mask", *a.mask);
    if (needs_pairs(a)) add("pairs", pairs_array(*a.segments));
    // What is switched off is not read: any pointer will do.
    terms = std::string("lattice::attend_terms(") + (a.biased ? "bias, " : "q, ") +
            (a.positions ? "of_queries, of_keys, " : "q_offsets, q_offsets, ") +
            (a.mask ? "mask), " : "q_offsets), ") +
            "lattice::attend_segments(q_offsets, k_offsets, " +
            (needs_pairs(a) ? "pairs" : "q_offsets") + ", blocks), sizes, ";
    add_sizes("AttentionSizes", sizes_of(c));
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
      call.shared.push_back({"float", tile, "lattice::kSpan * lattice::kSpanPitch"});
      names.append(names.empty() ? "" : ", ").append(tile);
    }
    enter(variant, to + ", lattice::attend_rows(q, k, v), " + slopes + terms +
                       "lattice::" + memory + "{" + names + "}, " + kThreadPlace);
    return KernelCall::run(s);
  }
};

graph::Arrays forward(const Call& call) {
  const Attend& a = call.get<Attend>();
  const mx::array& q = call.inputs[0];
  const int rows = q.shape(0), heads = q.shape(1);
  if (rows == 0) return {q, mx::zeros({0, heads}, mx::float32, call.stream)};
  if (a.segments->n_keys() == 0)
    return {mx::zeros_like(q, call.stream),
            mx::full({rows, heads}, INFINITY, mx::float32, call.stream)};
  AttendKernel kernel(call, "attention_tile", a.segments->q_offsets(), heads);
  kernel.add_output("out", {q.shape(), q.dtype()});
  kernel.add_output("lse", {{rows, heads}, mx::float32});
  return kernel.run("out, lse", "AttendMemory", {"left", "right", "weights"}, call.stream);
}

}  // namespace

graph::Arrays attention_with_metal(const Call& call, const Route& route) {
  route.count_run();
  return forward(call);
}

Rejection has_no_table(const Call& call) {
  if (call.get<Attend>().positions)
    return {Rejection::Step::storage, "the gradient of a table by position sums over all pairs"};
  return {};
}

graph::Arrays attention_vjp_with_metal(const Call& call, const Route& route) {
  route.count_run();
  const Attend& a = call.get<Attend>();
  const mx::StreamOrDevice s = call.stream;
  const graph::Arrays &in = call.inputs, of_forward(in.begin(), in.begin() + 3 + a.biased);
  if (a.segments->n_queries() == 0 || a.segments->n_keys() == 0) {
    graph::Arrays none;
    for (const mx::array& x : of_forward) none.push_back(mx::zeros_like(x, s));
    return none;
  }
  const mx::array &q = in[0], &k = in[1], &v = in[2], &out = in[a.inputs()], &g = in.back();
  mx::array lse = in[a.inputs() + 1];
  if (lse.size() == 0)  // the forward pass saved none
    lse = forward(attention_call(Operation::attention, a, of_forward, s))[1];
  const mx::array delta =
      mx::sum(mx::multiply(as_float32(g, s), as_float32(out, s), s), -1, false, s);
  AttendKernel of_queries(call, "attention_dq", a.segments->q_offsets(), q.shape(1));
  of_queries.add_slopes(g, lse, delta);
  of_queries.add_output("dq", {q.shape(), q.dtype()});
  if (a.biased) of_queries.add_output("dbias", {in[3].shape(), mx::float32});
  // Without a bias the kernel gets dq in the place of dbias, which it does not touch.
  const graph::Arrays found = of_queries.run(
      a.biased ? "lattice::query_slopes(dq, dbias)" : "lattice::query_slopes(dq, dq)",
      "AttendMemory", {"left", "right", "weights"}, s);
  AttendKernel of_keys(call, "attention_dkv", a.segments->k_offsets(), k.shape(1));
  of_keys.add_slopes(g, lse, delta);
  of_keys.add_output("dk", {k.shape(), k.dtype()});
  of_keys.add_output("dv", {v.shape(), v.dtype()});
  const graph::Arrays keys_found = of_keys.run("lattice::key_slopes(dk, dv)", "KeyMemory",
                                               {"left", "right", "weights", "slopes"}, s);
  graph::Arrays grads = {found[0], keys_found[0], keys_found[1]};
  if (a.biased) grads.push_back(found[1]);
  return grads;
}

}  // namespace lattice
