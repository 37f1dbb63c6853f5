// Reductions over segments of rows. Arguments only.
#include "lattice/ops/segments.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Array = const mx::array&;
using Empty = const std::optional<float>&;
using Stream = mx::StreamOrDevice;
using Text = std::string_view;

template <typename F>
void def_reduce(nb::module_& m, const char* name, const F& reduce, const char* second) {
  def(
      m, name,
      [name, reduce](Array x, Array segments, Text operation, Text ties, Empty empty, Stream s) {
        return reduce(x, segments, segment_options(operation, ties, empty, name), s);
      },
      "x"_a, nb::arg(second), "operation"_a, "ties"_a, "empty_value"_a, "stream"_a, Unlocked());
}

}  // namespace

void bind_segments(nb::module_& m) {
  def_reduce(m, "segment_reduce", &segment_reduce, "lengths");
  def_reduce(m, "segment_reduce_offsets", &segment_reduce_offsets, "offsets");
  def(
      m, "indexed_segment_reduce",
      [](Array x, Array indices, Array lengths, Text operation, Text ties, Empty empty, Stream s) {
        const auto options = segment_options(operation, ties, empty, "indexed_segment_reduce");
        return indexed_segment_reduce(x, indices, lengths, options, s);
      },
      "x"_a, "indices"_a, "lengths"_a, "operation"_a, "ties"_a, "empty_value"_a, "stream"_a,
      Unlocked());
  def(
      m, "scatter_reduce",
      [](Array x, Array ids, int64_t n, Text operation, Text ties, Empty empty, Stream s) {
        const auto options = segment_options(operation, ties, empty, "scatter_reduce");
        return scatter_reduce(x, ids, n, options, s);
      },
      "x"_a, "ids"_a, "n"_a, "operation"_a, "ties"_a, "empty_value"_a, "stream"_a, Unlocked());
  def(m, "segment_offsets", &segment_offsets, "lengths"_a, Unlocked());
  def(m, "segment_indices", &segment_indices, "lengths"_a, Unlocked());
  def(m, "segment_expand", &segment_expand, "y"_a, "lengths"_a, "stream"_a, Unlocked());
  def(m, "segment_softmax", &segment_softmax, "x"_a, "lengths"_a, "stream"_a, Unlocked());
}
