// Distances between rows. Arguments only.
#include "lattice/ops/distance.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_distance(nb::module_& m) {
  using Array = const mx::array&;
  using Optional = const std::optional<mx::array>&;
  using Stream = mx::StreamOrDevice;
  using Text = std::string_view;
  def(
      m, "indexed_distance",
      [](Array a, Array b, Optional a_rows, Optional b_rows, Text metric, Stream s) {
        return indexed_distance(a, b, a_rows, b_rows, parse_metric(metric, "indexed_distance"), s);
      },
      "a"_a, "b"_a, "a_indices"_a, "b_indices"_a, "metric"_a, "stream"_a, Unlocked());
  def(
      m, "indexed_distance_blocked",
      [](Array a, Array b, int64_t block_size, Text metric, Stream s) {
        const Metric how = parse_metric(metric, "indexed_distance_blocked");
        return indexed_distance_blocked(a, b, block_size, how, s);
      },
      "a"_a, "b"_a, "block_size"_a, "metric"_a, "stream"_a, Unlocked());
  def(
      m, "indexed_pair_distance",
      [](Array a, Array a_rows, Array b, Array b_rows, Text metric, Stream s) {
        const Metric how = parse_metric(metric, "indexed_pair_distance", true);
        return indexed_pair_distance(a, a_rows, b, b_rows, how, s);
      },
      "a"_a, "a_indices"_a, "b"_a, "b_indices"_a, "metric"_a, "stream"_a, Unlocked());
}
