// Reductions over segments of rows. Arguments only.
#include "lattice/ops/segments.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;

namespace {

using Stream = mx::StreamOrDevice;
template <typename F>
void def_reduce(nb::module_& m, const char* name, const F& reduce, const char* second,
                const char* doc) {
  m.def(
      name,
      [name, reduce](const mx::array& x, const mx::array& segments, const std::string& operation,
                     const std::string& ties, std::optional<float> empty_value, Stream s) {
        return reduce(x, segments, segment_options(operation, ties, empty_value, name), s);
      },
      nb::arg("x"), nb::arg(second), nb::arg("operation") = "sum", nb::kw_only(),
      nb::arg("ties") = "split", nb::arg("empty_value") = nb::none(),
      nb::arg("stream") = nb::none(), Unlocked(), doc);
}

}  // namespace

void bind_segments(nb::module_& m) {
  def_reduce(m, "segment_reduce", &segment_reduce, "lengths",
             "y[s] = sum, mean, max or min over the rows of segment s; segments follow each other "
             "with these lengths.");
  def_reduce(m, "segment_reduce_offsets", &segment_reduce_offsets, "offsets",
             "segment_reduce with the B + 1 borders of the segments instead of their lengths.");
  m.def(
      "indexed_segment_reduce",
      [](const mx::array& x, const mx::array& indices, const mx::array& lengths,
         const std::string& operation, const std::string& ties, std::optional<float> empty_value,
         Stream s) {
        return indexed_segment_reduce(
            x, indices, lengths,
            segment_options(operation, ties, empty_value, "indexed_segment_reduce"), s);
      },
      nb::arg("x"), nb::arg("indices"), nb::arg("lengths"), nb::arg("operation") = "sum",
      nb::kw_only(), nb::arg("ties") = "split", nb::arg("empty_value") = nb::none(),
      nb::arg("stream") = nb::none(), Unlocked(),
      "y[s] = sum, mean, max or min over x[indices[e]] for the entries e of segment s; indices may "
      "repeat.");
  m.def(
      "scatter_reduce",
      [](const mx::array& x, const mx::array& ids, nb::handle n, const std::string& operation,
         const std::string& ties, std::optional<float> empty_value, Stream s) {
        const int64_t count = integer(n, "scatter_reduce", "n");
        const SegmentOptions options =
            segment_options(operation, ties, empty_value, "scatter_reduce");
        Release release;
        return scatter_reduce(x, ids, count, options, s);
      },
      nb::arg("x"), nb::arg("ids"), nb::arg("n"), nb::arg("operation") = "sum", nb::kw_only(),
      nb::arg("ties") = "split", nb::arg("empty_value") = nb::none(),
      nb::arg("stream") = nb::none(),
      "y[i] = sum, mean, max or min over the rows r with ids[r] == i, in any order, for i < n.");
  m.def("segment_expand", &segment_expand, nb::arg("y"), nb::arg("lengths"), nb::kw_only(),
        nb::arg("stream") = nb::none(), Unlocked(),
        "Row s of y lengths[s] times: the adjoint of segment_reduce's sum.");
  m.def("segment_softmax", &segment_softmax, nb::arg("x"), nb::arg("lengths"), nb::kw_only(),
        nb::arg("stream") = nb::none(), Unlocked(),
        "Softmax over the rows of each segment, column by column.");
}
