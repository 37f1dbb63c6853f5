// Attention over ragged segments. Arguments only.
#include "lattice/ops/attention.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/core/arrays.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Array = const mx::array&;
using Optional = std::optional<mx::array>;
using Scale = const std::optional<float>&;
using Stream = mx::StreamOrDevice;

}  // namespace

// None, one flat array, one array for each segment, or a PositionBias.
template <>
struct Argument<AttentionBias> {
  static constexpr auto Name =
      nb::detail::const_name("ArrayLike | collections.abc.Sequence[ArrayLike] | PositionBias");
  static AttentionBias from(nb::handle value, At at) {
    if (value.is_none()) return std::monostate();
    if (const auto* bias = instance<PositionBias>(value)) return *bias;
    if (is_list_of_arrays(value)) return Argument<std::vector<mx::array>>::from(value, at);
    return array(value, at);
  }
};

// None, "causal", one flat array, or one array for each segment.
template <>
struct Argument<AttentionMask> {
  static constexpr auto Name =
      nb::detail::const_name("str | ArrayLike | collections.abc.Sequence[ArrayLike]");
  static AttentionMask from(nb::handle value, At at) {
    if (value.is_none()) return std::monostate();
    if (nb::isinstance<nb::str>(value)) return std::string(text(value, at));
    if (is_list_of_arrays(value)) return Argument<std::vector<mx::array>>::from(value, at);
    return array(value, at);
  }
};

// The edges of a relation, by the rows that attend.
template <>
struct Argument<EdgeSegments> {
  static constexpr auto Name = nb::detail::const_name("KernelRelation | NeighborRelation");
  static EdgeSegments from(nb::handle value, At at) {
    if (const auto* neighbors = instance<NeighborRelation>(value))
      return unlocked([&] { return edge_segments(*neighbors); });
    if (const auto* kernel = instance<Relation>(value))
      return unlocked([&] { return edge_segments(*kernel); });
    wrong_kind(value, at, "a NeighborRelation or a KernelRelation");
  }
};

namespace {

constexpr const char* kPositionBias =
    R"(Bias of attention from a table by relative position.

Let p be q_positions[i] - k_positions[j], clipped to -bounds .. bounds on each axis. The bias of head
h is the sum over the axes of table[h, entry of p on this axis].

Args:
    table: (H, entries) float array, which gets a gradient.
    q_positions: Integers (T, axes), 1 to 3 axes; (T,) for one axis.
    k_positions: Integers (S, axes); by default those of the queries.
    bounds: One integer per axis; axis a owns 2 bounds[a] + 1 entries.
    joint: Whether one entry belongs to all axes together; there are then as many entries as the
        product over the axes.

>>> import mlx.core as mx
>>> from mlx_lattice import ops
>>> bias = ops.PositionBias(mx.zeros((2, 9)), [0, 1, 5], bounds=4)
>>> bias.bounds
(4,))";

std::vector<int64_t> bounds_of(nb::handle value, At at) {
  if (nb::isinstance<nb::int_>(value)) return {integer(value, at)};
  return integers(value, at);
}

}  // namespace

struct TableBounds {
  std::vector<int64_t> values;
};
LATTICE_ARGUMENT(TableBounds, "int | collections.abc.Sequence[int]", {bounds_of(value, at)});

void bind_attention(nb::module_& m) {
  nb::class_<PositionBias> c(m, "PositionBias", kPositionBias);
  def_init(
      c,
      [](Array table, Array q_positions, const Optional& k_positions, const TableBounds& bounds,
         bool joint) {
        return PositionBias(table, q_positions, k_positions, bounds.values, joint);
      },
      "table"_a, "q_positions"_a, "k_positions"_a = nb::none(), nb::kw_only(), "bounds"_a,
      "joint"_a = false, Unlocked());
  c.def_prop_ro("table", [](const PositionBias& p) { return p.table; })
      .def_prop_ro("q_positions", [](const PositionBias& p) { return private_copy(p.q_positions); })
      .def_prop_ro("k_positions", [](const PositionBias& p) { return private_copy(p.k_positions); })
      .def_prop_ro("bounds",
                   [](const PositionBias& p) {
                     return to_python(std::vector<int64_t>(p.bounds.begin(), p.bounds.end()));
                   })
      .def_ro("joint", &PositionBias::joint);
  def(
      m, "attention",
      [](Array q, Array k, Array v, Array offsets, const Optional& k_offsets, Scale scale,
         const AttentionBias& bias, const AttentionMask& mask,
         Stream s) { return attention(q, k, v, offsets, {k_offsets, scale, bias, mask}, s); },
      "q"_a, "k"_a, "v"_a, "offsets"_a, "k_offsets"_a, "scale"_a, "bias"_a, "mask"_a, "stream"_a,
      Unlocked());
  def(
      m, "neighbor_attention",
      [](const Optional& q, const Optional& k, Array v, const EdgeSegments& edges,
         const Optional& bias, Scale scale,
         Stream s) { return neighbor_attention(q, k, v, edges, {bias, scale}, s); },
      "q"_a, "k"_a, "v"_a, "relation"_a, "bias"_a, "scale"_a, "stream"_a, Unlocked());
  def(
      m, "rotary",
      [](Array x, Array positions, double base, bool halves, Stream s) {
        return rotary(x, positions, base, halves, s);
      },
      "x"_a, "positions"_a, "base"_a, "halves"_a, "stream"_a);
}
