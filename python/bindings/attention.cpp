// Attention over ragged segments. Arguments only.
#include "lattice/ops/attention.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;

namespace {

using Stream = mx::StreamOrDevice;
using Optional = std::optional<mx::array>;

std::vector<int64_t> bounds_of(nb::handle value) {
  if (nb::isinstance<nb::int_>(value)) return {integer(value, "PositionBias", "bounds")};
  return integers(value, "PositionBias", "bounds");
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
          [](PositionBias* self, const mx::array& table, nb::handle q_positions,
             nb::handle k_positions, nb::handle bounds, bool joint) {
            constexpr const char* kName = "PositionBias";
            const std::vector<int64_t> limits = bounds_of(bounds);
            const mx::array queries = array(q_positions, kName, "q_positions");
            const Optional keys =
                k_positions.is_none() ? Optional() : array(k_positions, kName, "k_positions");
            Release release;
            new (self) PositionBias(table, queries, keys, limits, joint);
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
}
