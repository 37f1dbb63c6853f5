// Attention over ragged segments. Arguments only.
#include "lattice/ops/attention.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"

using namespace lattice;

namespace {

using Stream = mx::StreamOrDevice;
using Optional = std::optional<mx::array>;

std::vector<int64_t> bounds_of(nb::handle value) {
  if (nb::isinstance<nb::int_>(value)) return {integer(value, "PositionBias", "bounds")};
  return integers(value, "PositionBias", "bounds");
}

EdgeSegments edges_of(nb::handle relation) {
  if (nb::isinstance<NeighborRelation>(relation)) {
    const auto& neighbors = nb::cast<const NeighborRelation&>(relation);
    return unlocked([&] { return edge_segments(neighbors); });
  }
  if (nb::isinstance<Relation>(relation)) {
    const auto& kernel = nb::cast<const Relation&>(relation);
    return unlocked([&] { return edge_segments(kernel); });
  }
  throw TypeError("[neighbor_attention] relation: found " +
                  std::string(nb::str(nb::handle(relation.type()).attr("__name__")).c_str()) +
                  ", expected a NeighborRelation or a KernelRelation.");
}

}  // namespace

void bind_attention(nb::module_& m) {
  nb::class_<PositionBias>(
      m, "PositionBias",
      "Bias of attention from a table by relative position.\n\n"
      "Let p be q_positions[i] - k_positions[j], clipped to -bounds .. bounds on each axis. The "
      "bias "
      "of head h is the sum over the axes of table[h, entry of p on this axis].\n\n"
      "Args:\n"
      "    table: (H, entries) float array, which gets a gradient.\n"
      "    q_positions: Integers (T, axes), 1 to 3 axes; (T,) for one axis.\n"
      "    k_positions: Integers (S, axes); by default those of the queries.\n"
      "    bounds: One integer per axis; axis a owns 2 bounds[a] + 1 entries.\n"
      "    joint: Whether one entry belongs to all axes together; there are then as many entries "
      "as "
      "the product over the axes.")
      .def(
          "__init__",
          [](PositionBias* self, const Given& table, nb::handle q_positions, nb::handle k_positions,
             nb::handle bounds, bool joint) {
            constexpr const char* kName = "PositionBias";
            const std::vector<int64_t> limits = bounds_of(bounds);
            const mx::array queries = array(q_positions, kName, "q_positions");
            const Optional keys =
                k_positions.is_none() ? Optional() : array(k_positions, kName, "k_positions");
            Release release;
            new (self) PositionBias(*table, queries, keys, limits, joint);
          },
          nb::arg("table"), nb::arg("q_positions"), nb::arg("k_positions") = nb::none(),
          nb::kw_only(), nb::arg("bounds"), nb::arg("joint") = false,
          "table (H, entries) is differentiable; positions (rows, axes) are integers; bounds has "
          "one integer per axis.")
      .def_prop_ro("table", [](const PositionBias& p) { return p.table; })
      .def_prop_ro("q_positions", [](const PositionBias& p) { return private_copy(p.q_positions); })
      .def_prop_ro("k_positions", [](const PositionBias& p) { return private_copy(p.k_positions); })
      .def_prop_ro("bounds", [](const PositionBias& p) { return nb::tuple(nb::cast(p.bounds)); })
      .def_ro("joint", &PositionBias::joint);
  m.def(
      "attention",
      [](const mx::array& q, const mx::array& k, const mx::array& v, const mx::array& offsets,
         const Optional& k_offsets, std::optional<float> scale, const AttentionBias& bias,
         const AttentionMask& mask, Stream s) {
        Release release;
        return attention(q, k, v, offsets, {k_offsets, scale, bias, mask}, s);
      },
      nb::arg("q"), nb::arg("k"), nb::arg("v"), nb::arg("offsets"), nb::kw_only(),
      nb::arg("k_offsets") = nb::none(), nb::arg("scale") = nb::none(),
      nb::arg("bias") = nb::none(), nb::arg("mask") = nb::none(), nb::arg("stream") = nb::none(),
      "softmax(scale q k^T + bias) v for each segment, without an array of lengths squared.\n\n"
      "Args:\n"
      "    q: Queries (T, H, D), 1 <= D <= 256.\n"
      "    k: Keys (S, H_kv, D); H is a multiple of H_kv.\n"
      "    v: Values, like k.\n"
      "    offsets: (B + 1,) integers from 0 to T; segment s is rows offsets[s] .. offsets[s + "
      "1].\n"
      "    k_offsets: The same for k and v; by default offsets.\n"
      "    scale: Factor of the products; by default D ** -0.5.\n"
      "    bias: None, a list with one array (H, L_q, L_k) per segment, all of them as one flat "
      "array, or a `PositionBias`.\n"
      "    mask: None, \"causal\", or booleans like a bias without H, true where a key is seen.\n"
      "    stream: The stream or device on which the work runs; by default that of MLX.\n\n"
      "Returns:\n    An array like q. A query that sees no key gives 0.");
  m.def(
      "neighbor_attention",
      [](const Optional& q, const Optional& k, const mx::array& v, nb::handle relation,
         const Optional& bias, std::optional<float> scale, Stream s) {
        const EdgeSegments edges = edges_of(relation);
        Release release;
        return neighbor_attention(q, k, v, edges, {bias, scale}, s);
      },
      nb::arg("q").none(), nb::arg("k").none(), nb::arg("v"), nb::arg("relation"), nb::kw_only(),
      nb::arg("bias") = nb::none(), nb::arg("scale") = nb::none(), nb::arg("stream") = nb::none(),
      "Softmax over the edges of each query times v, without an array of edges times channels.\n\n"
      "The logit of an edge is scale <q, k> + bias. Without q and k the bias alone is the logit: "
      "grouped vector attention.\n\n"
      "Args:\n"
      "    q: Queries (N, H, D), or None.\n"
      "    k: Keys (M, H, D), or None together with q.\n"
      "    v: Values (M, H, D), one row per source.\n"
      "    relation: A `NeighborRelation` from sources to queries, or a `KernelRelation` from "
      "input "
      "rows to output rows.\n"
      "    bias: (E, H), one row per edge of the relation, or None.\n"
      "    scale: Factor of the products; by default D ** -0.5.\n"
      "    stream: The stream or device on which the work runs; by default that of MLX.\n\n"
      "Returns:\n    (N, H, D). A query without edges gives 0.");
  m.def(
      "rotary",
      [](const mx::array& x, const mx::array& positions, double base, Stream s) {
        return rotary(x, positions, base, s);
      },
      nb::arg("x"), nb::arg("positions"), nb::kw_only(), nb::arg("base") = 10000.0,
      nb::arg("stream") = nb::none(),
      "Rotary position encoding on 1 to 3 axes: pairs of channels are turned by angles that grow "
      "with the position.\n\n"
      "Args:\n"
      "    x: (N, H, D); each axis owns 2 * (D // (2 * axes)) channels, the rest is copied.\n"
      "    positions: (N, axes) numbers, constant for derivatives.\n"
      "    base: Pair m of P pairs turns by position * base ** (-m / P).\n"
      "    stream: The stream or device on which the work runs; by default that of MLX.\n\n"
      "Returns:\n    An array like x.");
}
