// Distances between rows. Arguments only.
#include "lattice/ops/distance.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;

namespace {
using Stream = mx::StreamOrDevice;
using Array = std::optional<mx::array>;
}  // namespace

void bind_distance(nb::module_& m) {
  m.def(
      "indexed_distance",
      [](const mx::array& a, const mx::array& b, const Array& a_idx, const Array& b_idx,
         const std::string& metric, Stream s) {
        return indexed_distance(a, b, a_idx, b_idx, parse_metric(metric, "indexed_distance"), s);
      },
      nb::arg("a"), nb::arg("b"), nb::arg("a_indices") = nb::none(),
      nb::arg("b_indices") = nb::none(), nb::arg("metric") = "euclidean", nb::kw_only(),
      nb::arg("stream") = nb::none(), Unlocked(),
      "(N, M) distances of all pairs of rows; no (N, M, C) array is made.");
  m.def(
      "indexed_distance_blocked",
      [](const mx::array& a, const mx::array& b, int64_t block_size, const std::string& metric,
         Stream s) {
        return indexed_distance_blocked(a, b, block_size,
                                        parse_metric(metric, "indexed_distance_blocked"), s);
      },
      nb::arg("a"), nb::arg("b"), nb::arg("block_size") = 512, nb::arg("metric") = "euclidean",
      nb::kw_only(), nb::arg("stream") = nb::none(), Unlocked(),
      "indexed_distance whose gradient needs no more than block_size rows of the matrix at a "
      "time.");
  m.def(
      "indexed_pair_distance",
      [](const mx::array& a, const mx::array& a_idx, const mx::array& b, const mx::array& b_idx,
         const std::string& metric, Stream s) {
        return indexed_pair_distance(a, a_idx, b, b_idx,
                                     parse_metric(metric, "indexed_pair_distance", true), s);
      },
      nb::arg("a"), nb::arg("a_indices"), nb::arg("b"), nb::arg("b_indices"),
      nb::arg("metric") = "euclidean", nb::kw_only(), nb::arg("stream") = nb::none(), Unlocked(),
      "(T,) distances of given pairs of rows.");
}
