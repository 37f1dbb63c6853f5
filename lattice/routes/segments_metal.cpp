#include "lattice/routes/segments_metal.h"

#include <mlx/ops.h>

#include <algorithm>

#include "lattice/kernels/portable/segment_sizes.h"
#include "lattice/routes/kernel_call.h"

namespace lattice::routes {
namespace {

constexpr int kThreads = 256;

const char* flag(bool on) { return on ? "true" : "false"; }

// A kernel with an (n, channels) result. A thread computes one value or, where channels are a
// multiple of 4 and `by4` allows it, four neighbors.
struct SegmentKernel : KernelCall {
  int each;

  SegmentKernel(const std::string& name, int64_t n, int channels, mx::Dtype dtype, bool by4 = true)
      : KernelCall("segments_" + name, "segments"), each(by4 && channels % 4 == 0 ? 4 : 1) {
    if (each > 1) call.name += "_by4";
    const int across = std::min(channels / each, kThreads);
    add_output("out", {{static_cast<int>(n), channels}, dtype});
    call.grid = {channels / each, static_cast<int>(n), 1};
    call.threadgroup = {across, kThreads / across, 1};
  }
  // The name of an input that the kernel may do without: where there is none, a pointer that is not
  // read.
  std::string add_maybe(const char* name, const std::optional<mx::array>& array) {
    if (!array) return "offsets";
    add(name, *array);
    return name;
  }
  // function<channels of a thread, flags>(out, arguments, sizes, place)
  mx::array run(const std::string& function, const std::string& flags, const std::string& arguments,
                mx::StreamOrDevice s, float fill = 0.0f) {
    add_sizes("SegmentSizes", SegmentSizes{call.outputs[0].shape[1], fill});
    enter(function + "<" + std::to_string(each) + flags + ">",
          "out, " + arguments + ", sizes, thread_position_in_grid.xy");
    return KernelCall::run(s)[0];
  }
};

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
  SegmentKernel kernel(name(mode) + std::string(segments.rows ? "_rows" : "") +
                           (segments.weights ? "_weighted" : ""),
                       segments.n(), x.shape(1), dtype);
  kernel.add("x", x), kernel.add("offsets", segments.offsets);
  const std::string rows = kernel.add_maybe("rows", segments.rows),
                    weights = kernel.add_maybe("weights", segments.weights);
  const std::string constant = mode == ReduceMode::max    ? "lattice::kMax"
                               : mode == ReduceMode::min  ? "lattice::kMin"
                               : mode == ReduceMode::mean ? "lattice::kMean"
                                                          : "lattice::kSum";
  return kernel.run("reduce_segments",
                    ", " + constant + ", " + flag(segments.rows.has_value()) + ", " +
                        flag(segments.weights.has_value()),
                    "x, lattice::entries(offsets, " + rows + ", " + weights + ")", s);
}

mx::array match_plain(const mx::array& a, const mx::array& b, const std::optional<mx::array>& x,
                      const MetalSegments& segments, const std::optional<mx::array>& owners,
                      mx::StreamOrDevice s) {
  SegmentKernel kernel(std::string(x ? "match" : "count") + (segments.rows ? "_rows" : "") +
                           (owners ? "_pieces" : ""),
                       segments.n(), b.shape(1), mx::float32);
  kernel.add("a", a), kernel.add("b", b), kernel.add("offsets", segments.offsets);
  const std::string values = x ? kernel.add_maybe("x", x) : "b",
                    rows = kernel.add_maybe("rows", segments.rows),
                    owner = kernel.add_maybe("owners", owners);
  return kernel.run("match_segments",
                    std::string(", ") + flag(!x) + ", " + flag(segments.rows.has_value()) + ", " +
                        flag(owners.has_value()),
                    "a, b, " + values + ", lattice::entries(offsets, " + rows + ", " + owner + ")",
                    s);
}

}  // namespace

mx::array metal_reduce(const mx::array& x, const MetalSegments& segments, ReduceMode mode,
                       mx::Dtype dtype, mx::StreamOrDevice s) {
  if (is_empty(segments, x)) return zeros(segments, x.shape(1), dtype, s);
  if (segments.pieces.empty()) return reduce_plain(x, segments, mode, dtype, s);
  const SegmentPieces& cut = segments.pieces.front();
  const bool mean = mode == ReduceMode::mean;
  const ReduceMode part = mean ? ReduceMode::sum : mode;
  const mx::array values =
      reduce_plain(x, {cut.bounds, segments.rows, segments.weights}, part, mx::float32, s);
  const mx::array whole = metal_reduce(values, {cut.starts, {}, {}, segments.pieces.subspan(1)},
                                       part, mean ? mx::float32 : dtype, s);
  if (!mean) return whole;
  const int n = static_cast<int>(segments.n());
  mx::array total = mx::subtract(mx::slice(segments.offsets, {1}, {n + 1}, s),
                                 mx::slice(segments.offsets, {0}, {n}, s), s);
  total = mx::reshape(mx::astype(total, mx::float32, s), {n, 1}, s);
  const mx::array some = mx::greater(total, mx::array(0.0f), s);
  if (segments.weights) {
    const mx::array w = mx::reshape(*segments.weights, {-1, 1}, s);
    total = metal_reduce(w, {segments.offsets, {}, {}, segments.pieces}, ReduceMode::sum,
                         mx::float32, s);
  }
  return mx::astype(mx::where(some, mx::divide(whole, total, s), mx::array(0.0f), s), dtype, s);
}

mx::array metal_match(const mx::array& a, const mx::array& b, const std::optional<mx::array>& x,
                      const MetalSegments& segments, mx::StreamOrDevice s) {
  if (is_empty(segments, b)) return zeros(segments, b.shape(1), mx::float32, s);
  if (segments.pieces.empty()) return match_plain(a, b, x, segments, {}, s);
  const SegmentPieces& cut = segments.pieces.front();
  const mx::array values = match_plain(a, b, x, {cut.bounds, segments.rows, {}}, cut.owners, s);
  return metal_reduce(values, {cut.starts, {}, {}, segments.pieces.subspan(1)}, ReduceMode::sum,
                      mx::float32, s);
}

mx::array metal_argmax(const mx::array& x, const MetalSegments& segments, bool minimum,
                       mx::StreamOrDevice s) {
  const int channels = x.shape(1);
  if (is_empty(segments, x))
    return mx::full({static_cast<int>(segments.n()), channels}, -1, mx::int32, s);
  // `rows`: of the entries, or chosen for each channel, or none.
  const auto plain = [&](const mx::array& offsets, const std::optional<mx::array>& rows) {
    const bool chosen = rows && rows->ndim() == 2;
    SegmentKernel kernel(std::string(minimum ? "argmin" : "argmax") + (chosen ? "_chosen"
                                                                       : rows ? "_rows"
                                                                              : ""),
                         offsets.shape(0) - 1, channels, mx::int32, !chosen);
    kernel.add("x", x), kernel.add("offsets", offsets);
    const std::string from = kernel.add_maybe("rows", rows);
    return kernel.run(
        "argmax_segments",
        std::string(", ") + flag(minimum) + ", " + flag(rows && !chosen) + ", " + flag(chosen),
        "x, lattice::entries(offsets, " + from + ", offsets)", s);
  };
  mx::array offsets = segments.offsets;
  std::optional<mx::array> rows = segments.rows;
  for (const SegmentPieces& cut : segments.pieces) {
    rows = plain(cut.bounds, rows);
    offsets = cut.starts;
  }
  return plain(offsets, rows);
}

mx::array metal_gather(const mx::array& x, const mx::array& rows, float fill,
                       mx::StreamOrDevice s) {
  const int n = rows.shape(0), channels = x.shape(1);
  if (n == 0 || x.size() == 0) return mx::full({n, channels}, mx::array(fill, x.dtype()), s);
  SegmentKernel kernel("gather", n, channels, x.dtype());
  kernel.add("x", x), kernel.add("rows", rows);
  return kernel.run("gather_rows", "", "x, rows", s, fill);
}

MetalSegments group_segments(const RowGroups& groups) {
  const RowGroups::Arrays& kept = groups.arrays();
  return {kept.offsets, kept.rows, {}, kept.pieces};
}

mx::array segments_with_metal(const SegmentsAsked& asked) {
  return metal_reduce(asked.x, group_segments(*asked.groups), asked.mode, asked.x.dtype(),
                      asked.stream);
}

mx::array gather_with_metal(const GatherAsked& asked) {
  return metal_gather(asked.x, asked.groups->arrays().group_of, asked.fill, asked.stream);
}

mx::array map_rows_with_metal(const MapRowsAsked& asked) {
  const RowMap& map = *asked.map;
  const RowMap::Parts& parts = map.parts();
  if (!parts.offsets) return metal_gather(asked.x, parts.rows, 0, asked.stream);
  const ReduceMode mode = map.reduction() == Reduction::max    ? ReduceMode::max
                          : map.reduction() == Reduction::mean ? ReduceMode::mean
                                                               : ReduceMode::sum;
  return metal_reduce(asked.x, {*parts.offsets, parts.rows, parts.weights, map.pieces()}, mode,
                      asked.x.dtype(), asked.stream);
}

}  // namespace lattice::routes
