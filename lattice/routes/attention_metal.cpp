// attention and its gradient on Metal: kernels/metal/attention.metal.
#include <mlx/ops.h>

#include <cmath>

#include "lattice/graph/gpu_call.h"
#include "lattice/kernels/metal/text.h"
#include "lattice/routes/attention.h"

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

// What the three kernels share.
struct Launch {
  const Call& call;
  const Attend& a;
  std::string variant, suffix;
  mx::array q_offsets, k_offsets, pairs, mask, sizes, scale;

  explicit Launch(const Call& given)
      : call(given),
        a(given.get<Attend>()),
        q_offsets(offsets_array(a.segments->q_offsets(), a.segments->n_segments())),
        k_offsets(offsets_array(a.segments->k_offsets(), a.segments->n_segments())),
        pairs(a.mask || (a.biased && !a.positions) ? pairs_array(*a.segments) : q_offsets),
        mask(a.mask ? *a.mask : q_offsets),
        sizes(size_array()),
        scale(mx::array({a.scale}, {1})) {
    const char* bias = !a.biased            ? "kNoBias"
                       : !a.positions       ? "kPairBias"
                       : a.positions->joint ? "kJointBias"
                                            : "kAxesBias";
    const int parts = (call.inputs[0].shape(2) + kSpan - 1) / kSpan;
    const auto flag = [](bool on) { return on ? "true" : "false"; };
    variant.append("<").append(std::to_string(parts)).append(", lattice::").append(bias);
    variant.append(", ").append(flag(a.mask.has_value())).append(", ").append(flag(a.causal));
    variant.append(">");
    suffix.append("_").append(std::to_string(parts)).append("_").append(bias);
    suffix.append(a.mask ? "_mask" : "").append(a.causal ? "_causal" : "");
  }

  mx::array size_array() const {
    const graph::Arrays& in = call.inputs;
    std::vector<int32_t> sizes = {in[0].shape(1), in[1].shape(1), in[0].shape(2), 0, 0, 0, 0, 0};
    if (a.positions) {
      sizes[3] = static_cast<int32_t>(a.positions->bounds.size());
      for (size_t i = 0; i < a.positions->bounds.size(); ++i) sizes[4 + i] = a.positions->bounds[i];
      sizes[7] = in[3].shape(1);
    }
    return integers(sizes, {8});
  }

  // One group for each of 32 rows and each head. `names` are those of the inputs and stand in the
  // call in this order behind two outputs.
  graph::Arrays run(const std::string& function, std::vector<std::string> outputs,
                    std::vector<graph::OutputSpec> specs, std::vector<std::string> names,
                    graph::Arrays inputs, const mx::array& blocks, int heads, bool slopes) const {
    graph::GpuCall launch;
    launch.name = function + suffix;
    launch.header = metal::text("attention");
    std::vector<std::string> tiles = {"left", "right", "weights"};
    if (slopes) tiles.push_back("slopes");
    names.insert(names.end(),
                 {"mask", "q_offsets", "k_offsets", "pairs", "blocks", "sizes", "scale"});
    inputs.insert(inputs.end(), {mask, q_offsets, k_offsets, pairs, blocks, sizes, scale});
    std::string arguments;
    for (const std::string& name : outputs) arguments.append(name).append(", ");
    if (outputs.size() == 1) arguments.append(outputs[0]).append(", ");
    for (const std::string& name : names) arguments.append(name).append(", ");
    for (const std::string& name : tiles) {
      launch.shared.push_back({"float", name, "lattice::kSpan * lattice::kSpanPitch"});
      arguments.append(name).append(", ");
    }
    launch.source.append("lattice::").append(function).append(variant).append("(");
    launch.source.append(arguments);
    launch.source.append(
        "threadgroup_position_in_grid, thread_index_in_threadgroup, thread_index_in_simdgroup, "
        "simdgroup_index_in_threadgroup);");
    launch.input_names = std::move(names);
    launch.output_names = std::move(outputs);
    launch.outputs = std::move(specs);
    launch.grid = {kThreads, blocks.shape(0), heads};
    launch.threadgroup = {kThreads, 1, 1};
    return graph::gpu_call(launch, inputs, call.stream);
  }
};

graph::Arrays forward(const Call& call) {
  const Attend& a = call.get<Attend>();
  const graph::Arrays& in = call.inputs;
  const mx::array& q = in[0];
  const int rows = q.shape(0), heads = q.shape(1);
  if (rows == 0) return {q, mx::zeros({0, heads}, mx::float32, call.stream)};
  if (a.segments->n_keys() == 0)
    return {mx::zeros_like(q, call.stream),
            mx::full({rows, heads}, INFINITY, mx::float32, call.stream)};
  const Launch launch(call);
  return launch.run("attention_tile", {"out", "lse"},
                    {{q.shape(), q.dtype()}, {{rows, heads}, mx::float32}},
                    {"q", "k", "v", "bias", "of_queries", "of_keys"},
                    {q, in[1], in[2], a.biased ? in[3] : q,
                     a.positions ? a.positions->of_queries : launch.q_offsets,
                     a.positions ? a.positions->of_keys : launch.q_offsets},
                    blocks_of(a.segments->q_offsets(), a.segments->n_segments()), heads, false);
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
  const auto wide = [s](const mx::array& x) { return mx::astype(x, mx::float32, s); };
  const mx::array delta = mx::sum(mx::multiply(wide(g), wide(out), s), -1, false, s);
  const Launch launch(call);
  const std::vector<std::string> names = {"q", "k", "v", "g", "lse", "delta", "bias"};
  const graph::Arrays inputs = {q, k, v, g, lse, delta, a.biased ? in[3] : q};
  const int64_t n = a.segments->n_segments();
  // Without a bias the kernel gets dq in the place of dbias, which it does not touch.
  std::vector<std::string> outputs = {"dq"};
  std::vector<graph::OutputSpec> specs = {{q.shape(), q.dtype()}};
  if (a.biased) {
    outputs.push_back("dbias");
    specs.push_back({in[3].shape(), mx::float32});
  }
  const graph::Arrays found = launch.run("attention_dq", outputs, specs, names, inputs,
                                         blocks_of(a.segments->q_offsets(), n), q.shape(1), false);
  const graph::Arrays of_keys =
      launch.run("attention_dkv", {"dk", "dv"}, {{k.shape(), k.dtype()}, {v.shape(), v.dtype()}},
                 names, inputs, blocks_of(a.segments->k_offsets(), n), k.shape(1), true);
  graph::Arrays grads = {found[0], of_keys[0], of_keys[1]};
  if (a.biased) grads.push_back(found[1]);
  return grads;
}

}  // namespace lattice
