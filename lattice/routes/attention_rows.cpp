// The rows of attention over ragged segments and of its gradient.
#include "lattice/graph/dtype.h"
#include "lattice/routes/attention.h"

namespace lattice::routes {
namespace {

using When = std::vector<Condition<AttentionAsked>>;

constexpr int kSdpaSizes[] = {64, 80, 128};  // of a head; for others MLX makes arrays of all pairs

// Equal segments without bias, which MLX's own kernel takes; it gives no log-sum-exp.
const When kEqualSegments = {
    {Step::relation, "equal segments",
     [](const AttentionAsked& asked) {
       const auto runs = asked.attend.segments->runs();
       return runs.size() == 1 && runs[0].queries > 0 && runs[0].keys > 0;
     },
     [](const AttentionAsked&) {
       return std::string("the segments have different lengths or no rows");
     }},
    {Step::relation, "",
     [](const AttentionAsked& asked) {
       const auto runs = asked.attend.segments->runs();
       return !asked.attend.causal || runs[0].keys >= runs[0].queries;
     },
     [](const AttentionAsked&) { return std::string("some queries of a causal mask see no key"); }},
    {Step::storage, "no bias, no mask but causal",
     [](const AttentionAsked& asked) { return !asked.attend.biased && !asked.attend.mask; },
     [](const AttentionAsked&) { return std::string("there is a bias or a mask of pairs"); }},
    {Step::shape,
     "heads of " + number(kSdpaSizes[0]) + ", " + number(kSdpaSizes[1]) + " or " +
         number(kSdpaSizes[2]) + " channels",
     [](const AttentionAsked& asked) {
       for (const int size : kSdpaSizes)
         if (asked.q.shape(2) == size) return true;
       return false;
     },
     [](const AttentionAsked& asked) {
       return "heads of " + std::to_string(asked.q.shape(2)) + " channels";
     }}};

const std::vector<Condition<AttentionVjpAsked>> kNoTable = {
    {Step::storage, "no table by position",
     [](const AttentionVjpAsked& asked) { return !asked.forward.attend.positions.has_value(); },
     [](const AttentionVjpAsked&) {
       return std::string("the gradient of a table by position sums over all pairs");
     }}};

// The weights of attention are float32 for any features.
template <class Asked>
bool always_float32(const Asked&) {
  return true;
}

}  // namespace

AttentionAsked attention_asked(const Attend& attend, const graph::Arrays& in,
                               mx::StreamOrDevice s) {
  AttentionAsked asked{attend, in[0], in[1], in[2], std::nullopt, s};
  if (attend.biased) asked.bias = in[3];
  return asked;
}
AttentionVjpAsked attention_vjp_asked(const Attend& attend, const graph::Arrays& in,
                                      mx::StreamOrDevice s) {
  const size_t n = attend.biased ? 4 : 3;
  return {attention_asked(attend, in, s), in[n], in[n + 1], in[n + 2], s};
}

graph::Arrays AttentionAsked::inputs() const {
  if (bias) return {q, k, v, *bias};
  return {q, k, v};
}

Facts AttentionAsked::facts() const {
  const int64_t channels = int64_t{q.shape(1)} * q.shape(2);
  Facts facts;
  facts.dtype = q.dtype();
  facts.n_in = q.shape(0), facts.n_out = q.shape(0), facts.n_edges = attend.segments->n_pairs();
  // Two products.
  facts.flop = 4 * static_cast<double>(*facts.n_edges) * static_cast<double>(channels);
  facts.bytes = static_cast<double>(q.nbytes());
  for (const mx::array& a : inputs()) facts.bytes += static_cast<double>(a.nbytes());
  facts.relation = attend.segments->text();
  facts.storage = "features only";
  facts.shape = channels_text(channels, channels) + ", " + graph::dtype_name(q.dtype());
  return facts;
}
Facts AttentionVjpAsked::facts() const {
  Facts facts = forward.facts();
  facts.flop *= 2.5;  // five products
  facts.bytes = 2 * (facts.bytes + static_cast<double>(lse.nbytes() + g.nbytes()));
  return facts;
}

std::string AttentionAsked::variant() const {
  return graph::dtype_name(q.dtype()) +
         (attend.positions ? " table"
          : attend.biased  ? " bias"
                           : "") +
         (attend.mask ? " mask" : "") + (attend.causal ? " causal" : "");
}

const Table<AttentionAsked, graph::Arrays>& attention_rows() {
  static const Table<AttentionAsked, graph::Arrays> table(
      "attention", "attention",
      {{kCpu,
        Code::host,
        "cpu.tiles",
        {},
        "any segments: tiles of 48 queries and 128 keys, running maximum and sum",
        attention_tiles},
       {kGpu, Code::mlx, "gpu.sdpa", kEqualSegments, "scaled_dot_product_attention of MLX",
        counted<attention_with_sdpa>},
       {kGpu,
        Code::metal,
        "metal.tiles",
        {},
        "any segments: 32 queries of a head per threadgroup, tiles of 32 keys",
        counted<attention_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any segments: matmul of MLX for each run of segments of one length, in float32",
        counted<attention_with_mlx>,
        nullptr,
        always_float32}});
  return table;
}

const Table<AttentionVjpAsked, graph::Arrays>& attention_vjp_rows() {
  static const Table<AttentionVjpAsked, graph::Arrays> table(
      "attention_vjp", "gradient of attention",
      {{kCpu,
        Code::host,
        "cpu.tiles",
        {},
        "any segments: weights again from the log-sum-exp, tile by tile",
        attention_vjp_tiles},
       {kGpu, Code::metal, "metal.tiles", kNoTable,
        "queries, then keys and values, 32 rows of a head per threadgroup",
        counted<attention_vjp_with_metal>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any segments: MLX's gradient of the formula",
        counted<attention_vjp_with_mlx>,
        nullptr,
        always_float32}},
      Answer::sums);
  return table;
}

}  // namespace lattice::routes
