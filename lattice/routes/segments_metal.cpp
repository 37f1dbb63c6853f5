#include "lattice/routes/segments_metal.h"

#include <mlx/ops.h>

#include <algorithm>

#include "lattice/graph/metal_call.h"
#include "lattice/kernels/metal/text.h"
#include "lattice/routes/pool.h"

namespace lattice {
namespace {

constexpr int kThreads = 256;

// The call function<channels of a thread, flags>(out, arguments, place). There is one thread per
// value of an (n, channels) result. With `wide` and channels a multiple of 4 there is one per four
// neighbors.
mx::array launch(std::string name, const std::string& function, const std::string& flags,
                 const std::string& arguments, std::vector<std::string> names,
                 const std::vector<mx::array>& inputs, int64_t n, int channels, mx::Dtype dtype,
                 mx::StreamOrDevice s, bool wide = true) {
  const int each = wide && channels % 4 == 0 ? 4 : 1, across = std::min(channels / each, kThreads);
  if (each > 1) name += "_by4";
  graph::MetalCall call;
  call.name = "segments_" + name;
  call.header = metal::text("segments");
  call.source = "lattice::" + function + "<" + std::to_string(each) + flags + ">(out, " +
                arguments + ", thread_position_in_grid.xy);";
  call.input_names = std::move(names);
  call.output_names = {"out"};
  call.outputs = {{{static_cast<int>(n), channels}, dtype}};
  call.grid = {channels / each, static_cast<int>(n), 1};
  call.threadgroup = {across, kThreads / across, 1};
  return graph::metal_call(call, inputs, s)[0];
}

const char* flag(bool on) { return on ? "true" : "false"; }

// Arrays that a kernel may do without: their names and, where there is none, a pointer that is not
// read.
struct Inputs {
  std::vector<std::string> names;
  std::vector<mx::array> arrays;
  std::string add(const char* name, const std::optional<mx::array>& array) {
    if (!array) return "offsets";
    names.push_back(name);
    arrays.push_back(*array);
    return name;
  }
};

// Long segments cut: piece p is entries bounds[p] .. bounds[p + 1] of segment owners[p]; segment s
// has the pieces starts[s] .. starts[s + 1].
struct Pieces {
  mx::array bounds, owners, starts;
};
std::optional<Pieces> pieces_of(const MetalSegments& segments) {
  const int32_t* offsets = segments.offsets.data<int32_t>();
  const int64_t n = segments.n();
  int32_t longest = 0;
  for (int64_t i = 0; i < n; ++i) longest = std::max(longest, offsets[i + 1] - offsets[i]);
  if (longest <= kMetalLong) return std::nullopt;
  std::vector<int32_t> bounds = {offsets[0]}, owners, starts = {0};
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t e = offsets[i]; e < offsets[i + 1]; e += kMetalPiece) {
      bounds.push_back(static_cast<int32_t>(std::min<int64_t>(e + kMetalPiece, offsets[i + 1])));
      owners.push_back(static_cast<int32_t>(i));
    }
    starts.push_back(static_cast<int32_t>(owners.size()));
  }
  const auto column = [](const std::vector<int32_t>& v) {
    return mx::array(v.data(), {static_cast<int>(v.size())}, mx::int32);
  };
  return Pieces{column(bounds), column(owners), column(starts)};
}

mx::array zeros(const MetalSegments& segments, int channels, mx::Dtype dtype,
                mx::StreamOrDevice s) {
  return mx::zeros({static_cast<int>(segments.n()), channels}, dtype, s);
}

bool is_empty(const MetalSegments& segments, const mx::array& x) {
  const int32_t* offsets = segments.offsets.data<int32_t>();
  return x.size() == 0 || offsets[0] == offsets[segments.n()];
}

// Without cutting.
mx::array reduce_plain(const mx::array& x, const MetalSegments& segments, ReduceMode mode,
                       mx::Dtype dtype, mx::StreamOrDevice s) {
  Inputs in{{"x", "offsets"}, {x, segments.offsets}};
  const std::string rows = in.add("rows", segments.rows),
                    weights = in.add("weights", segments.weights);
  const std::string constant = mode == ReduceMode::max    ? "lattice::kMax"
                               : mode == ReduceMode::min  ? "lattice::kMin"
                               : mode == ReduceMode::mean ? "lattice::kMean"
                                                          : "lattice::kSum";
  const std::string flags = ", " + constant + ", " + flag(segments.rows.has_value()) + ", " +
                            flag(segments.weights.has_value());
  return launch(name(mode) + std::string(segments.rows ? "_rows" : "") +
                    (segments.weights ? "_weighted" : ""),
                "reduce_segments", flags, "x, x_shape[1], offsets, " + rows + ", " + weights,
                in.names, in.arrays, segments.n(), x.shape(1), dtype, s);
}

mx::array match_plain(const mx::array& a, const mx::array& b, const std::optional<mx::array>& x,
                      const MetalSegments& segments, const std::optional<mx::array>& owners,
                      mx::StreamOrDevice s) {
  Inputs in{{"a", "b", "offsets"}, {a, b, segments.offsets}};
  const std::string values = x ? in.add("x", x) : "b", rows = in.add("rows", segments.rows);
  const std::string owner = in.add("owners", owners);
  const std::string flags = std::string(", ") + flag(!x) + ", " + flag(segments.rows.has_value()) +
                            ", " + flag(owners.has_value());
  return launch(std::string(x ? "match" : "count") + (segments.rows ? "_rows" : "") +
                    (owners ? "_pieces" : ""),
                "match_segments", flags,
                "a, b, " + values + ", b_shape[1], offsets, " + rows + ", " + owner, in.names,
                in.arrays, segments.n(), b.shape(1), mx::float32, s);
}

mx::array column(const int32_t* values, int64_t n) {
  return mx::array(values, {static_cast<int>(n)}, mx::int32);
}

}  // namespace

mx::array metal_reduce(const mx::array& x, const MetalSegments& segments, ReduceMode mode,
                       mx::Dtype dtype, mx::StreamOrDevice s) {
  if (is_empty(segments, x)) return zeros(segments, x.shape(1), dtype, s);
  const std::optional<Pieces> pieces = pieces_of(segments);
  if (!pieces) return reduce_plain(x, segments, mode, dtype, s);
  const bool mean = mode == ReduceMode::mean;
  const ReduceMode part = mean ? ReduceMode::sum : mode;
  const mx::array values =
      reduce_plain(x, {pieces->bounds, segments.rows, segments.weights}, part, mx::float32, s);
  const mx::array whole =
      metal_reduce(values, {pieces->starts, {}, {}}, part, mean ? mx::float32 : dtype, s);
  if (!mean) return whole;
  const int n = static_cast<int>(segments.n());
  mx::array total = mx::subtract(mx::slice(segments.offsets, {1}, {n + 1}, s),
                                 mx::slice(segments.offsets, {0}, {n}, s), s);
  total = mx::reshape(mx::astype(total, mx::float32, s), {n, 1}, s);
  const mx::array some = mx::greater(total, mx::array(0.0f), s);
  if (segments.weights) {
    const mx::array w = mx::reshape(*segments.weights, {-1, 1}, s);
    total = metal_reduce(w, {segments.offsets, {}, {}}, ReduceMode::sum, mx::float32, s);
  }
  return mx::astype(mx::where(some, mx::divide(whole, total, s), mx::array(0.0f), s), dtype, s);
}

mx::array metal_match(const mx::array& a, const mx::array& b, const std::optional<mx::array>& x,
                      const MetalSegments& segments, mx::StreamOrDevice s) {
  if (is_empty(segments, b)) return zeros(segments, b.shape(1), mx::float32, s);
  const std::optional<Pieces> pieces = pieces_of(segments);
  if (!pieces) return match_plain(a, b, x, segments, {}, s);
  const mx::array values =
      match_plain(a, b, x, {pieces->bounds, segments.rows, {}}, pieces->owners, s);
  return metal_reduce(values, {pieces->starts, {}, {}}, ReduceMode::sum, mx::float32, s);
}

mx::array metal_argmax(const mx::array& x, const MetalSegments& segments, bool minimum,
                       mx::StreamOrDevice s) {
  const int channels = x.shape(1);
  if (is_empty(segments, x))
    return mx::full({static_cast<int>(segments.n()), channels}, -1, mx::int32, s);
  // `rows`: of the entries, or chosen for each channel, or none.
  const auto plain = [&](const mx::array& offsets, const std::optional<mx::array>& rows) {
    const bool chosen = rows && rows->ndim() == 2;
    Inputs in{{"x", "offsets"}, {x, offsets}};
    const std::string from = in.add("rows", rows);
    const std::string flags =
        std::string(", ") + flag(minimum) + ", " + flag(rows && !chosen) + ", " + flag(chosen);
    return launch(std::string(minimum ? "argmin" : "argmax") + (chosen ? "_chosen"
                                                                : rows ? "_rows"
                                                                       : ""),
                  "argmax_segments", flags, "x, x_shape[1], offsets, " + from, in.names, in.arrays,
                  offsets.shape(0) - 1, channels, mx::int32, s, !chosen);
  };
  mx::array offsets = segments.offsets;
  std::optional<mx::array> rows = segments.rows;
  while (const std::optional<Pieces> pieces = pieces_of({offsets, {}, {}})) {
    rows = plain(pieces->bounds, rows);
    offsets = pieces->starts;
  }
  return plain(offsets, rows);
}

mx::array metal_gather(const mx::array& x, const mx::array& rows, float fill,
                       mx::StreamOrDevice s) {
  const int n = rows.shape(0), channels = x.shape(1);
  if (n == 0 || x.size() == 0) return mx::full({n, channels}, mx::array(fill, x.dtype()), s);
  return launch("gather", "gather_rows", "", "x, x_shape[1], rows, fill[0]", {"x", "rows", "fill"},
                {x, rows, mx::array(&fill, {1}, mx::float32)}, n, channels, x.dtype(), s);
}

MetalSegments group_segments(const RowGroups& groups) {
  const cpu::Segments& given = groups.segments();
  MetalSegments segments{column(given.offsets, given.n + 1), {}, {}};
  if (given.rows) segments.rows = column(given.rows, given.offsets[given.n]);
  return segments;
}

mx::array segments_with_metal(const Call& call) {
  return metal_reduce(call.inputs[0], group_segments(*call.row_groups), call.reduce().mode,
                      call.dtype, call.stream);
}

mx::array gather_with_metal(const Call& call) {
  const RowGroups& groups = *call.row_groups;
  return metal_gather(call.inputs[0], column(groups.group_of(), groups.n_rows()),
                      call.reduce().fill, call.stream);
}

}  // namespace lattice
