// Launches of kernels/metal/{coords,relations,neighbors}.metal: the rows "metal.*" of the geometry
// operations. int32 coordinates only.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/graph/dtype.h"
#include "lattice/graph/gpu_call.h"
#include "lattice/kernels/metal/text.h"
#include "lattice/routes/geometry.h"

namespace lattice {
namespace {

constexpr int kTile = 64;  // as in neighbors.metal

int rows_of(const mx::array& a) { return a.shape(0); }

struct Input {
  const char* name;
  mx::array array;
};

// One launch of `n` threads on x, for each of `words` on y.
std::vector<mx::array> launch(const char* topic, const std::string& name, const std::string& source,
                              const std::vector<Input>& inputs,
                              std::vector<graph::OutputSpec> outputs, int n, int words, int group,
                              std::optional<float> init_value, mx::StreamOrDevice s,
                              std::vector<graph::SharedArray> shared = {}) {
  graph::GpuCall call;
  call.shared = std::move(shared);
  call.name = std::string(topic) + "_" + name;
  call.header = metal::text(topic);
  call.source = source;
  std::vector<mx::array> arrays;
  for (const Input& in : inputs) {
    call.input_names.push_back(in.name);
    arrays.push_back(in.array);
  }
  call.output_names = {"out", "distances"};
  call.output_names.resize(outputs.size());
  call.outputs = std::move(outputs);
  call.grid = {n, words, 1};
  call.threadgroup = {group, 1, 1};
  call.init_value = init_value;
  return graph::gpu_call(call, arrays, s);
}

// Slots with every row of coords; twice as many as rows, or more.
mx::array table_of(const mx::array& coords, mx::StreamOrDevice s) {
  const int slots = static_cast<int>(std::bit_ceil(static_cast<uint32_t>(2 * rows_of(coords) + 2)));
  return launch(
      "coords", "insert",
      "lattice::insert_coordinate(out, uint(size[0]), coords, int(thread_position_in_grid.x));",
      {{"coords", coords}, {"size", mx::array({slots}, {1}, mx::int32)}}, {{{slots}, mx::int32}},
      rows_of(coords), 1, 256, -1.0f, s)[0];
}

mx::array find(const mx::array& coords, const mx::array& queries, mx::StreamOrDevice s) {
  const int n = rows_of(queries);
  if (n == 0 || rows_of(coords) == 0) return mx::full({n}, -1, mx::int32, s);
  return launch("coords", "find",
                "const int q = int(thread_position_in_grid.x);\n"
                "out[q] = lattice::find_coordinate(slots, uint(slots_shape[0]), coords, "
                "lattice::coordinate(queries, q));",
                {{"slots", table_of(coords, s)}, {"coords", coords}, {"queries", queries}},
                {{{n}, mx::int32}}, n, 1, 256, {}, s)[0];
}

}  // namespace

Rejection needs_hash(const Call& call) {
  for (const mx::array& a : call.inputs)
    if (a.dtype() == mx::int64 || a.size() >= size_t{1} << 31)
      return {Rejection::Step::shape, "coordinates are int64 or have 2^29 rows or more"};
  return needs_gpu_kernels(call);
}

Rejection needs_map_by_hash(const Call& call) {
  const Geometry& g = call.geometry();
  const bool scatters = offsets_start_at_zero(g.kind);
  const int64_t k = g.spec.volume(), words = (k + 31) / 32, n = rows_of(call.inputs[0]);
  // Where the output rows are still to be made there are at most so many.
  const int64_t n_out = g.has_target ? call.n_out() : n * (scatters ? k : 1);
  if (n_out * (k + words) > std::numeric_limits<int32_t>::max() || n_out >= 1 << 29)
    return {Rejection::Step::shape, "the map may have 2^31 values or more"};
  const Rejection why = needs_hash(call);
  if (!why.fits() || g.has_target || !scatters) return why;
  const int32_t* rows = n ? call.inputs[0].data<int32_t>() : nullptr;
  for (int64_t r = 0; r < n; ++r)
    for (size_t a = 0; a < 3; ++a) {
      const int64_t low =
          rows[r * 4 + 1 + static_cast<int64_t>(a)] * g.spec.stride[a] - g.spec.padding[a];
      const int64_t high = low + (g.spec.size[a] - 1) * g.spec.dilation[a];
      if (low < std::numeric_limits<int32_t>::min() || high > std::numeric_limits<int32_t>::max())
        return {Rejection::Step::shape, "some output coordinate leaves int32"};
    }
  return why;
}

mx::array lookup_with_metal(const Call& call) {
  return find(call.inputs[0], call.inputs[1], call.stream);
}

mx::array unique_with_metal(const Call& call) {
  const mx::array& coords = call.inputs[0];
  const auto s = call.stream;
  const int n = rows_of(coords);
  if (n == 0) return mx::zeros({2, 0}, mx::int32, s);
  const mx::array first = find(coords, coords, s);
  const mx::array is_first = mx::equal(first, mx::arange(n, mx::int32, s), s);
  const mx::array number = mx::subtract(
      mx::cumsum(mx::astype(is_first, mx::int32, s), 0, false, true, s), mx::array(1), s);
  return launch(
      "coords", "compact",
      "lattice::compact_row(out, first, number, first_shape[0], int(thread_position_in_grid.x));",
      {{"first", first}, {"number", number}}, {{{2, n}, mx::int32}}, n, 1, 256, -1.0f, s)[0];
}

mx::array relate_with_metal(const Call& call) {
  const mx::array &in = call.inputs[0], &out = call.inputs[1];
  const auto s = call.stream;
  const RelationKind kind = call.geometry().kind;
  const KernelSpec& spec = call.geometry().spec;
  const int n_k = static_cast<int>(spec.volume()), n_words = (n_k + 31) / 32, n = rows_of(out);
  if (n == 0 || rows_of(in) == 0) {
    const mx::array none = mx::full({n, n_k}, -1, mx::int32, s);
    return mx::concatenate({none, mx::zeros({n, n_words}, mx::int32, s)}, 1, s);
  }
  std::vector<int32_t> offsets, steps;
  for (const Triple& offset :
       kernel_offsets(spec.size, spec.dilation, !offsets_start_at_zero(kind)))
    for (const int64_t v : offset) offsets.push_back(static_cast<int32_t>(v));
  for (const Triple* t : {&spec.stride, &spec.padding})
    for (const int64_t v : *t) steps.push_back(static_cast<int32_t>(v));
  const std::string scatter = offsets_start_at_zero(kind) ? "true" : "false";
  return launch(
      "relations", offsets_start_at_zero(kind) ? "scatter" : "gather",
      "lattice::relate_row<" + scatter +
          ">(out, slots, uint(slots_shape[0]), rows, targets, offsets, steps, offsets_shape[0], "
          "thread_position_in_grid.xy);",
      {{"slots", table_of(in, s)},
       {"rows", in},
       {"targets", out},
       {"offsets", mx::array(offsets.data(), {n_k, 3}, mx::int32)},
       {"steps", mx::array(steps.data(), {6}, mx::int32)}},
      {{{n, n_k + n_words}, mx::int32}}, n, n_words, 256, {}, s)[0];
}

mx::array neighbors_with_metal(const Call& call) {
  const mx::array &source = call.inputs[0], &query = call.inputs[1];
  const auto s = call.stream;
  const int n = rows_of(query);
  const int64_t limit = call.geometry().limit;
  const float reach = call.geometry().reach.value_or(std::numeric_limits<float>::infinity());
  std::vector<int32_t> result = {0, 0, 0};  // truncated in two words, the first offset
  if (n == 0 || rows_of(source) == 0) {
    result.resize(static_cast<size_t>(n) + 3, 0);
    return mx::array(result.data(), {n + 3}, mx::int32);
  }
  const std::string kind = call.geometry().points ? "points" : "coords";
  const std::string visit = std::string("lattice::visit_sources<") +
                            (call.geometry().points ? "true" : "false") +
                            ">(found, source, source_shape[0], query, n, q, reach[0], tile, "
                            "int(thread_position_in_threadgroup.x));\n";
  const std::string head =
      "const int n = query_shape[0], q = "
      "int(thread_position_in_grid.x);\n";
  const std::vector<graph::SharedArray> tile = {{"int4", "tile", "lattice::kTile"}};
  const std::vector<Input> inputs = {
      {"source", source}, {"query", query}, {"reach", mx::array(&reach, {1}, mx::float32)}};
  const int threads = (n + kTile - 1) / kTile * kTile;
  mx::array counts =
      launch("neighbors", "count_" + kind,
             head + "lattice::Counted found = {0};\n" + visit + "if (q < n) out[q] = found.n;",
             inputs, {{{n}, mx::int32}}, threads, 1, kTile, {}, s, tile)[0];
  counts.eval();
  const int32_t* count = counts.data<int32_t>();
  const int64_t most = *std::max_element(count, count + n);
  const int width = static_cast<int>(std::min(limit, most));
  int64_t truncated = 0;
  for (int q = 0; q < n && call.geometry().reach; ++q)
    truncated += std::max<int64_t>(0, count[q] - int64_t{width});
  if (int64_t{n} * width > std::numeric_limits<int32_t>::max())
    throw std::invalid_argument("[neighbors] metal.brute keeps " + std::to_string(width) +
                                " neighbors for each of " + std::to_string(n) +
                                " queries, expected fewer than 2^31");
  result[0] = static_cast<int32_t>(truncated & ((1 << 30) - 1));
  result[1] = static_cast<int32_t>(truncated >> 30);
  std::vector<int32_t> distances;
  if (width > 0) {
    std::vector<Input> with_width = inputs;
    with_width.push_back({"width", mx::array({width}, {1}, mx::int32)});
    std::vector<mx::array> found = launch(
        "neighbors", "take_" + kind,
        head + "const size_t first = size_t(min(q, n - 1)) * size_t(width[0]);\n" +
            "lattice::Nearest found = {out + first, distances + first, width[0], 0};\n" + visit,
        with_width, {{{n, width}, mx::int32}, {{n, width}, mx::float32}}, threads, 1, kTile, -1.0f,
        s, tile);
    mx::eval(found);
    std::vector<int32_t> sources;
    for (int q = 0; q < n; ++q) {
      const int64_t kept = std::min<int64_t>(count[q], width), at = int64_t{q} * width;
      for (int64_t e = at; e < at + kept; ++e) {
        sources.push_back(found[0].data<int32_t>()[e]);
        distances.push_back(std::bit_cast<int32_t>(found[1].data<float>()[e]));
      }
      result.push_back(static_cast<int32_t>(sources.size()));
    }
    result.insert(result.end(), sources.begin(), sources.end());
    result.insert(result.end(), distances.begin(), distances.end());
  } else {
    result.resize(static_cast<size_t>(n) + 3, 0);
  }
  return mx::array(result.data(), {static_cast<int>(result.size())}, mx::int32);
}

}  // namespace lattice
