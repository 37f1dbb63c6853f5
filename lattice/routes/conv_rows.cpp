// The rows of conv, linear, outer, per_edge_apply and per_edge_outer, and when they fit.
#include <algorithm>
#include <limits>

#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/features/bf16_conv.h"
#include "lattice/kernels/cpu/features/buckets.h"
#include "lattice/kernels/cpu/features/conv_plan.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/per_edge.h"

namespace lattice::routes {
namespace {

constexpr int64_t kMatrixSide = 8, kTensorSide = 16;  // channels that a unit multiplies at least
// Where AVX-512 BF16 pays: 2x2x2 up of 64 channels takes 1.1 of the time of cpu.tiles on Zen 5, a
// 3x3x3 0.65.
constexpr int64_t kBf16Offsets = 16, kBf16Channels = 128;
constexpr int64_t kMaskBits = 32;       // of a mask that rows are sorted by
constexpr int64_t kMostLists = 4;       // of a tile and an offset, per edge
constexpr int64_t kEdgesPerMatrix = 2;  // from which a matrix is worth keeping in the cache
constexpr int64_t kMostGroups = (int64_t{1} << 31) / 128 - 1;  // MLX counts threads in 32 bits

std::string channels_of_group(const ConvProblem& z) {
  return "a group has " + std::to_string(z.in_group()) + " -> " + std::to_string(z.out_group()) +
         " channels";
}

bool both_sides_have(const ConvProblem& z, int64_t channels) {
  return z.in_group() >= channels && z.out_group() >= channels;
}

std::string or_more_channels(int64_t channels, const char* sides) {
  return number(channels) + " or more channels on " + sides + " of a group";
}

std::string edges_and_buckets(const ConvProblem& z) {
  const cpu::RelationLists& lists = z.relation->lists();
  return std::to_string(lists.n_edges) + " edges in " +
         std::to_string(lists.out_once ? lists.n_edges : lists.n_buckets) + " buckets, " +
         std::to_string(z.out_group()) + " output channels";
}

// "at least 1.25 edges per (offset, output row) with 64 output channels per group, 2 with 32, 5
// with fewer"
std::string shared_words() {
  std::string words = "at least ";
  for (const cpu::SharedFrom& from : cpu::kConvShared) {
    const bool first = &from == cpu::kConvShared;
    words += number(from.edges) + (first ? " edges per (offset, output row)" : "") + " with ";
    words += from.columns ? number(from.columns) + (first ? " output channels per group, " : ", ")
                          : "fewer";
  }
  return words;
}

// One launch has threads for every tile: of each kernel the most, tiles of rows or parts of the
// edges of an offset.
int64_t launch_groups(const ConvProblem& z) {
  return std::max(z.n_out() / kTileEdges, z.n_edges() / kPartEdges) + z.n_k() + 1;
}

int64_t tile_lists(const Relation& r) {
  return (r.n_out() + kTileEdges - 1) / kTileEdges * r.n_kernels();
}

bool has_many_edges(const ConvProblem& z) { return z.n_edges() >= kEdgesPerMatrix * z.n_k(); }
std::string few_edges_words() {
  return "fewer than " + number(kEdgesPerMatrix) + " edges per matrix";
}
std::string many_edges_words() { return number(kEdgesPerMatrix) + " or more edges per matrix"; }

// Conditions on the shape, for whatever is asked of it.
template <class Asked>
struct When {
  using All = std::vector<Condition<Asked>>;

  // The tile kernels divide by channel counts.
  static All channels() {
    return {{Step::shape, "no empty side", [](const Asked& a) { return a.c_in > 0 && a.c_out > 0; },
             [](const Asked&) { return std::string("one side has no channels"); }}};
  }

  // Several edges of an offset share an output row, so that sums of rows save products.
  static All shared() {
    return channels() +
           All{{Step::shape, shared_words(),
                [](const Asked& a) { return cpu::conv_buckets_pay(a.relation->lists(), a); },
                [](const Asked& a) { return edges_and_buckets(a); }, true}};
  }
  static All outer_shared() {
    return channels() +
           All{{Step::shape,
                "at least " + number(cpu::kOuterShared.edges) +
                    " edges per (offset, output row), " + number(cpu::kOuterShared.columns) +
                    " output channels per group, rows in a local order",
                [](const Asked& a) { return cpu::buckets_pay(a.relation->lists(), a); },
                [](const Asked& a) { return edges_and_buckets(a); }, true}};
  }

  static All few_groups() {
    return {{Step::shape, "", [](const Asked& a) { return launch_groups(a) <= kMostGroups; },
             [](const Asked& a) {
               return std::to_string(launch_groups(a)) +
                      " groups of 128 threads: MLX launches fewer than 2^31 threads";
             }}};
  }

  // Channels of a group fill an 8 x 8 matrix on one side; zeros fill it on the other.
  static All tiles() {
    return All{{Step::shape, or_more_channels(kMatrixSide, "one side"),
                [](const Asked& a) { return std::max(a.in_group(), a.out_group()) >= kMatrixSide; },
                [](const Asked& a) {
                  return channels_of_group(a) + ", a matrix unit takes " + number(kMatrixSide);
                }}} +
           few_groups();
  }

  // A neural accelerator, a 16-bit dtype, and channels of a group that fill its tiles.
  static All tensor() {
    return All{{Step::capability, "tier neural_accelerator",
                [](const Asked&) { return tensor_ops() == TensorOps::neural_accelerator; },
                [](const Asked&) {
                  return std::string("the tier is ") + lattice::name(tensor_ops()) +
                         ": only a neural accelerator multiplies faster this way";
                }},
               {Step::storage, "float16 or bfloat16",
                [](const Asked& a) { return a.dtype() != mx::float32; },
                [](const Asked&) {
                  return std::string("float32: the tensor unit would round to fewer bits");
                }},
               {Step::shape, or_more_channels(kTensorSide, "both sides"),
                [](const Asked& a) { return both_sides_have(a, kTensorSide); },
                [](const Asked& a) {
                  return channels_of_group(a) + ", the tensor unit takes " + number(kTensorSide);
                }}} +
           few_groups();
  }

  // A tile of 64 rows has edges of most offsets, or there are few of either.
  static All full_tiles() {
    return {
        {Step::relation,
         "at most " + number(kMostLists) + " lists of a tile and an offset per edge",
         [](const Asked& a) { return tile_lists(*a.relation) <= kMostLists * a.n_edges() + 4096; },
         [](const Asked& a) {
           return std::to_string(tile_lists(*a.relation)) + " lists of a tile and an offset for " +
                  std::to_string(a.n_edges()) + " edges: most would be empty";
         },
         true}};
  }

  static All many_edges() {
    return {{Step::relation, many_edges_words(), [](const Asked& a) { return has_many_edges(a); },
             [](const Asked&) { return few_edges_words(); }, true}};
  }
  static All few_edges() {
    return {{Step::relation, few_edges_words(), [](const Asked& a) { return !has_many_edges(a); },
             [](const Asked&) { return many_edges_words(); }, true}};
  }
};

using Conv = When<ConvAsked>;
using Outer = When<OuterAsked>;
using PerEdge = When<PerEdgeAsked>;
using ConvAll = Conv::All;

const ConvAll kDense = {
    {Step::storage, "dense weights", [](const ConvAsked& a) { return !a.weight.codes; },
     [](const ConvAsked& a) { return "weights are " + a.weight.codes->packing.text(); }}};
const ConvAll kPacked = {{Step::storage, "packed weights",
                          [](const ConvAsked& a) { return a.weight.codes.has_value(); },
                          [](const ConvAsked&) { return std::string("weights are dense"); }}};

// Every output row has at most one edge for an offset, and the map is not too long.
const ConvAll kMapFits = {
    {Step::relation, "",
     [](const ConvAsked& a) { return a.n_out() * a.n_k() <= std::numeric_limits<int32_t>::max(); },
     [](const ConvAsked&) {
       return std::string("rows times offsets exceed the 2^31 - 1 entries of a map");
     }}};
const ConvAll kMap =
    ConvAll{{Step::relation, "no custom relation",
             [](const ConvAsked& a) { return a.relation->kind() != RelationKind::custom; },
             [](const ConvAsked&) {
               return std::string(
                   "custom edges may have two of one offset in a row; the map holds one");
             }}} +
    kMapFits;

// Every output row has exactly one edge: up by 2 x 2 x 2, or the gradient of down by 2 x 2 x 2. The
// question counts the edges of every row, so that it comes after what costs nothing.
const ConvAll kOneEdge =
    Conv::few_groups() +
    ConvAll{
        {Step::relation, "exactly one edge per output row",
         [](const ConvAsked& a) { return a.relation->has_one_edge_per_output(); },
         [](const ConvAsked&) { return std::string("some output row has no edge or several"); }}};

// Masks that rows are sorted by.
const ConvAll kShortMask = ConvAll{{Step::relation, "at most " + number(kMaskBits) + " offsets",
                                    [](const ConvAsked& a) { return a.n_k() <= kMaskBits; },
                                    [](const ConvAsked& a) {
                                      return std::to_string(a.n_k()) +
                                             " offsets: a mask to sort by has " +
                                             number(kMaskBits) + " bits";
                                    }}} +
                           kMapFits;
const ConvAll kSorted =
    kMap + kShortMask +
    ConvAll{{Step::relation, "", [](const ConvAsked& a) { return a.relation->lists().out_once; },
             [](const ConvAsked&) {
               return std::string("some output row has two edges of one offset");
             }}};
// The rows of the relation that is reversed may be sorted.
const ConvAll kMirror =
    ConvAll{{Step::relation, "reversed submanifold relation",
             [](const ConvAsked& a) {
               return a.relation->kind() == RelationKind::submanifold && a.relation->is_reversed();
             },
             [](const ConvAsked&) {
               return std::string("not a reversed submanifold relation: no mirror image");
             }}} +
    kShortMask;

// Rows of bfloat16 on a processor that multiplies them.
const ConvAll kBf16 = ConvAll{
    {Step::storage, "bfloat16", [](const ConvAsked& a) { return a.dtype() == mx::bfloat16; },
     [](const ConvAsked& a) { return graph::dtype_name(a.dtype()); }},
    {Step::shape,
     "one group, " + or_more_channels(kTensorSide, "both sides") + ", " + number(kBf16Offsets) +
         " or more offsets unless there are " + number(kBf16Channels) + " channels",
     [](const ConvAsked& a) {
       return a.groups == 1 && both_sides_have(a, kTensorSide) &&
              (a.n_k() >= kBf16Offsets || both_sides_have(a, kBf16Channels));
     },
     [](const ConvAsked& a) {
       return std::to_string(a.groups) + " groups, " + std::to_string(a.n_k()) + " offsets; " +
              channels_of_group(a);
     }},
    {Step::capability, "AVX-512 BF16", [](const ConvAsked&) { return cpu::has_bf16_products(); },
     [](const ConvAsked&) {
       return std::string("this machine, or LATTICE_SIMD, has no AVX-512 BF16");
     }}};
std::string bf16_note(const ConvAsked&) {
  return "vdpbf16ps rounds sums in its own way: other machines may give other last bits";
}

template <class Asked>
bool is_float32(const Asked& asked) {
  return asked.dtype() == mx::float32;
}
template <class Asked>
std::string tiles_of(const Asked& asked) {
  return tile_note(asked);
}

const std::string kSlow = "any shape: one multiplication at a time, sums in float64";
const std::string kTileRows = "tiles of " + number(kTileEdges) + " rows ";

using ConvTable = Table<ConvAsked, mx::array>;
using ConvRow = Row<ConvAsked, mx::array>;
using OuterTable = Table<OuterAsked, mx::array>;
using PerEdgeTable = Table<PerEdgeAsked, mx::array>;

const std::vector<ConvRow> kLinearCpu = {
    {kCpu, Code::host, "cpu.bf16", kDense + kBf16,
     "products of two channels at a time in one instruction", conv_bf16, bf16_note},
    {kCpu, Code::host, "cpu.tiles", kDense + Conv::channels(),
     "tiles of output rows, packed weights, vector registers", conv_tiles, tiles_of},
    {kCpu, Code::host, "cpu.packed", kPacked + Conv::channels(),
     "the same tiles; one block of codes at a time is expanded", conv_packed, tiles_of},
    {kCpu,
     Code::host,
     "cpu.reference",
     {},
     kSlow + "; packed weights are made dense",
     conv_reference}};

std::vector<ConvRow> conv_on_cpu() {
  std::vector<ConvRow> rows = {
      {kCpu, Code::host, "cpu.buckets", kDense + Conv::shared(),
       "rows that share an output are added first", conv_buckets, tiles_of},
      {kCpu, Code::host, "cpu.packed_buckets", kPacked + Conv::shared(),
       "rows that share an output are added first", conv_packed_buckets, tiles_of}};
  rows.insert(rows.end(), kLinearCpu.begin(), kLinearCpu.end());
  return rows;
}

std::vector<ConvRow> conv_on_tensor_unit() {
  const auto tiles_of = [](const std::string& row) {
    return "the tiles of metal." + row + " on the tensor unit";
  };
  return {
      {kGpu, Code::metal, "metal.tensor_mirrored", kMirror + kDense + Conv::tensor(),
       tiles_of("mirrored"), counted<conv_metal_tensor_mirrored>, conv_tensor_use},
      {kGpu, Code::metal, "metal.tensor_lists", kOneEdge + kDense + Conv::tensor(),
       tiles_of("lists"), counted<conv_metal_tensor_lists>, conv_tensor_use},
      {kGpu, Code::metal, "metal.tensor_sorted", kSorted + kDense + Conv::tensor(),
       tiles_of("sorted"), counted<conv_metal_tensor_sorted>, conv_tensor_use},
      {kGpu, Code::metal, "metal.tensor_packed_lists", kMap + kOneEdge + kPacked + Conv::tensor(),
       tiles_of("packed_lists"), counted<conv_metal_tensor_lists>, conv_tensor_use},
      {kGpu, Code::metal, "metal.tensor_packed_mirrored", kMirror + kPacked + Conv::tensor(),
       tiles_of("packed_mirrored"), counted<conv_metal_tensor_mirrored>, conv_tensor_use},
      {kGpu, Code::metal, "metal.tensor_packed_sorted", kSorted + kPacked + Conv::tensor(),
       tiles_of("packed_sorted"), counted<conv_metal_tensor_sorted>, conv_tensor_use}};
}

std::vector<ConvRow> conv_on_metal() {
  const std::string expanded = "; codes are expanded as they are used";
  return {{kGpu, Code::metal, "metal.mirrored", kMirror + kDense + Conv::tiles(),
           "metal.sorted on the relation itself with the offsets in reverse order",
           counted<conv_metal_mirrored>, conv_tile_use},
          {kGpu, Code::metal, "metal.lists", kOneEdge + kDense + Conv::tiles(),
           "tiles of " + number(kTileEdges) +
               " edges of one offset; up by 2 x 2 x 2, and the gradient of down by 2 x 2 x 2",
           counted<conv_metal_lists>, conv_tile_use},
          {kGpu, Code::metal, "metal.sorted", kSorted + kDense + Conv::tiles(),
           kTileRows + "sorted by mask; matrix units skip offsets that 16 rows lack",
           counted<conv_metal_sorted>, conv_tile_use},
          {kGpu, Code::metal, "metal.tiles", kMap + kDense + Conv::tiles(),
           kTileRows + "in the given order", counted<conv_metal_tiles>, conv_tile_use},
          {kGpu, Code::metal, "metal.buckets", Conv::full_tiles() + kDense + Conv::tiles(),
           kTileRows + "in local order; rows that share output and offset are added first",
           counted<conv_metal_buckets>, conv_tile_use},
          {kGpu, Code::metal, "metal.packed_lists", kMap + kOneEdge + kPacked + Conv::tiles(),
           "the tiles of metal.lists" + expanded, counted<conv_metal_lists>, conv_tile_use},
          {kGpu, Code::metal, "metal.packed_mirrored", kMirror + kPacked + Conv::tiles(),
           "the tiles of metal.mirrored" + expanded, counted<conv_metal_mirrored>, conv_tile_use},
          {kGpu, Code::metal, "metal.packed_sorted", kSorted + kPacked + Conv::tiles(),
           "the tiles of metal.sorted" + expanded, counted<conv_metal_sorted>, conv_tile_use},
          {kGpu, Code::metal, "metal.packed_tiles", kMap + kPacked + Conv::tiles(),
           "the tiles of metal.tiles" + expanded, counted<conv_metal_tiles>, conv_tile_use},
          {kGpu,
           Code::metal,
           "metal.rows",
           {},
           "any shape, relation and storage on Metal: one thread per output value, edges by row",
           counted<conv_metal_rows>}};
}

}  // namespace

double ConvProblem::flop() const {
  return 2 * static_cast<double>(n_edges()) * static_cast<double>(c_in) *
         static_cast<double>(c_out) / static_cast<double>(groups);
}
graph::OutputSpec ConvProblem::rows() const {
  return {{static_cast<int>(n_out()), static_cast<int>(c_out)}, dtype()};
}
graph::OutputSpec ConvProblem::weights() const {
  return {{static_cast<int>(n_k()), static_cast<int>(in_group()), static_cast<int>(c_out)},
          dtype()};
}
graph::OutputSpec ConvProblem::matrices() const {
  return {{static_cast<int>(n_k()), static_cast<int>(groups), static_cast<int>(in_group()),
           static_cast<int>(out_group())},
          dtype()};
}

Facts ConvProblem::facts() const {
  Facts facts;
  facts.dtype = dtype();
  facts.n_in = n_in(), facts.n_out = n_out(), facts.n_edges = n_edges();
  facts.flop = flop();
  facts.bytes = static_cast<double>(n_in() * c_in + n_out() * c_out + n_k() * in_group() * c_out) *
                static_cast<double>(mx::size_of(dtype()));
  facts.relation = relation->text();
  facts.storage = "dense";
  facts.shape = channels_text(c_in, c_out, groups) + ", " + graph::dtype_name(dtype());
  return facts;
}
Facts ConvAsked::facts() const {
  Facts facts = ConvProblem::facts();
  const auto& codes = weight.codes;
  if (!codes) return facts;
  facts.bytes =
      static_cast<double>(n_in() * c_in + n_out() * c_out) *
          static_cast<double>(mx::size_of(dtype())) +
      static_cast<double>(weight.w.nbytes() + codes->scales.nbytes() + codes->biases.nbytes());
  facts.storage = codes->packing.text();
  return facts;
}

std::string ConvProblem::variant() const { return graph::dtype_name(dtype()); }
std::string ConvAsked::variant() const {
  const auto& codes = weight.codes;
  const std::string after = std::string(norm ? " norm" : "") + (weight.strided ? " strided" : "");
  if (!codes) return ConvProblem::variant() + after;
  return ConvProblem::variant() + after + " int" + std::to_string(codes->packing.bits) +
         (codes->packing.transposed ? " transposed" : "");
}

std::string Packing::text() const {
  return "packed int" + std::to_string(bits) + ", one scale per " + std::to_string(group_size) +
         " codes";
}

const ConvTable& conv_rows() {
  static const ConvTable table = [] {
    std::vector<ConvRow> rows = conv_on_cpu();
    for (const auto& part : {conv_on_tensor_unit(), conv_on_metal()})
      rows.insert(rows.end(), part.begin(), part.end());
    rows.push_back(ConvRow(kGpu, Code::mlx, "gpu.mlx", ConvAll{},
                           "any shape: gather, matmul and scatter-add of MLX, in float32; packed "
                           "weights: one offset dequantized at a time",
                           counted<conv_with_mlx>, nullptr, is_float32));
    return ConvTable("conv", "convolution", rows);
  }();
  return table;
}

// conv on the relation of every row with itself.
const ConvTable& linear_rows() {
  static const ConvTable table = [] {
    std::vector<ConvRow> rows = kLinearCpu;
    const std::vector<ConvRow> of_gpu = {
        {kGpu, Code::metal, "metal.tensor", kPacked + Conv::tensor(),
         "the tiles of metal.packed on the tensor unit", counted<conv_metal_tensor_same>},
        {kGpu, Code::metal, "metal.packed", kPacked + Conv::few_groups(),
         kTileRows + "on Metal; codes are expanded as they are used", counted<conv_metal_same>},
        {kGpu,
         Code::mlx,
         "gpu.mlx",
         {},
         "any shape: matmul of MLX, whose kernels are tuned for each GPU; packed weights are made "
         "dense, in float32",
         counted<linear_with_mlx>,
         nullptr,
         is_float32}};
    rows.insert(rows.end(), of_gpu.begin(), of_gpu.end());
    return ConvTable("linear", "matrix product", rows);
  }();
  return table;
}

// The weight gradient.
const OuterTable& outer_rows() {
  static const OuterTable table(
      "outer", "weight gradient",
      {{kCpu, Code::host, "cpu.buckets", Outer::outer_shared(),
        "rows that share an output are added first", outer_buckets, tiles_of},
       {kCpu, Code::host, "cpu.tiles", Outer::channels(),
        "rows copied once per part, sums in vector registers", outer_tiles, tiles_of},
       {kCpu, Code::host, "cpu.reference", {}, kSlow, outer_reference},
       {kGpu, Code::metal, "metal.tensor", Outer::tensor(),
        "the tiles of metal.outer on the tensor unit", counted<outer_metal_tensor>,
        outer_tensor_use},
       {kGpu, Code::metal, "metal.outer", Outer::tiles(),
        "edges of an offset in parts of " + number(kPartEdges) + ", added in order",
        counted<outer_metal_tiles>, outer_tile_use},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any shape on Metal: one thread per value of the result, the same parts",
        counted<outer_metal_rows>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any shape: gather, matmul and scatter-add of MLX, in float32",
        counted<outer_with_mlx>,
        nullptr,
        is_float32}},
      Answer::sums);
  return table;
}

// One matrix per edge.
const PerEdgeTable& per_edge_apply_rows() {
  static const PerEdgeTable table(
      "per_edge_apply", "product with one matrix per edge",
      {{kCpu, Code::host, "cpu.pairs", PerEdge::few_edges(),
        "matrices read in a stream, edges by output row", per_edge_apply_pairs},
       {kCpu, Code::host, "cpu.buckets", PerEdge::shared(),
        "the kernel of cpu.buckets of conv, where cpu.pairs does not fit", per_edge_apply_buckets,
        tiles_of},
       {kCpu, Code::host, "cpu.tiles", PerEdge::channels(),
        "the tiles of conv, which keep a matrix in the cache, where cpu.pairs does not fit",
        per_edge_apply_tiles, tiles_of},
       {kCpu, Code::host, "cpu.reference", {}, kSlow, per_edge_apply_reference},
       {kGpu, Code::metal, "metal.buckets",
        PerEdge::many_edges() + PerEdge::full_tiles() + PerEdge::tiles(),
        "the tiles of metal.buckets of conv", counted<per_edge_apply_metal_buckets>},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any shape on Metal: one thread per output value, edges by output row",
        counted<per_edge_apply_metal_rows>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any shape: gather, products and scatter-add of MLX, in float32",
        counted<per_edge_apply_with_mlx>,
        nullptr,
        is_float32}});
  return table;
}

const OuterTable& per_edge_outer_rows() {
  static const OuterTable table(
      "per_edge_outer", "outer products, one matrix per edge",
      {{kCpu, Code::host, "cpu.pairs", Outer::few_edges(),
        "matrices written in a stream, edges by matrix", per_edge_outer_pairs},
       {kCpu, Code::host, "cpu.buckets", Outer::outer_shared(),
        "the kernel of cpu.buckets of outer, where cpu.pairs does not fit", per_edge_outer_buckets,
        tiles_of},
       {kCpu, Code::host, "cpu.tiles", Outer::channels(),
        "the kernel of cpu.tiles of outer, where cpu.pairs does not fit", per_edge_outer_tiles,
        tiles_of},
       {kCpu, Code::host, "cpu.reference", {}, kSlow, per_edge_outer_reference},
       {kGpu, Code::metal, "metal.outer", Outer::many_edges() + Outer::tiles(),
        "the kernel of metal.outer of outer", counted<per_edge_outer_metal_tiles>},
       {kGpu,
        Code::metal,
        "metal.rows",
        {},
        "any shape on Metal: one thread per value of a matrix, edges of a matrix in parts of " +
            number(kPartEdges),
        counted<per_edge_outer_metal_rows>},
       {kGpu,
        Code::mlx,
        "gpu.mlx",
        {},
        "any shape: gather, products and scatter-add of MLX, in float32",
        counted<per_edge_outer_with_mlx>}},
      Answer::sums);
  return table;
}

}  // namespace lattice::routes
