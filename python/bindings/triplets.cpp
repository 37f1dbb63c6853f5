// Sums over triplets and point convolution. Arguments only.
#include "lattice/ops/triplets.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;

namespace {

using Stream = mx::StreamOrDevice;
using Array = std::optional<mx::array>;

MatrixLayout layout_of(const std::string& name) {
  if (name == "gcm") return MatrixLayout::gcm;
  if (name == "gmc") return MatrixLayout::gmc;
  throw std::invalid_argument("[mvmr] layout must be gmc or gcm, got '" + name + "'");
}

}  // namespace

void bind_triplets(nb::module_& m) {
  m.def(
      "mvmr",
      [](const mx::array& a, const Array& a_idx, const mx::array& b, const Array& b_idx,
         const mx::array& o_idx, int64_t n_o, const std::string& layout,
         Stream s) { return mvmr(a, a_idx, b, b_idx, o_idx, n_o, layout_of(layout), s); },
      nb::arg("a"), nb::arg("a_idx").none(), nb::arg("b"), nb::arg("b_idx").none(),
      nb::arg("o_idx"), nb::arg("n_o"), nb::kw_only(), nb::arg("layout") = "gmc",
      nb::arg("stream") = nb::none(), Unlocked(),
      "y[r, g, m] = sum over the triplets t with o_idx[t] == r of a[a_idx[t], g] b[b_idx[t], g].");
  m.def(
      "mvmr_on",
      [](const mx::array& a, const mx::array& b, const Relation& triplets,
         const std::string& layout,
         Stream s) { return mvmr(a, b, triplets.shared_from_this(), layout_of(layout), s); },
      nb::arg("a"), nb::arg("b"), nb::arg("triplets"), nb::kw_only(), nb::arg("layout") = "gmc",
      nb::arg("stream") = nb::none(), "mvmr on a relation of triplets that was made before.");
  m.def("vvor",
        nb::overload_cast<const mx::array&, const mx::array&, const mx::array&, const mx::array&,
                          const mx::array&, int64_t, Stream>(&vvor),
        nb::arg("a"), nb::arg("a_idx"), nb::arg("b"), nb::arg("b_idx"), nb::arg("o_idx"),
        nb::arg("n_o"), nb::kw_only(), nb::arg("stream") = nb::none(), Unlocked(),
        "u[r, g, m, c] = sum over the triplets t with o_idx[t] == r of a[a_idx[t], g, m] "
        "b[b_idx[t], g, c].");
  m.def(
      "triplet_relation",
      [](const Array& a_idx, const Array& b_idx, const mx::array& o_idx, int64_t n_a, int64_t n_b,
         int64_t n_o) { return triplet_relation(a_idx, b_idx, o_idx, n_a, n_b, n_o); },
      nb::arg("a_idx").none(), nb::arg("b_idx").none(), nb::arg("o_idx"), nb::kw_only(),
      nb::arg("n_a"), nb::arg("n_b"), nb::arg("n_o"), Unlocked(),
      "The triplets of mvmr as a relation, checked and sorted once.");
  m.def(
      "point_conv",
      [](const mx::array& x, const mx::array& weight, const Relation& relation, const Array& bias,
         Stream s) { return point_conv(x, weight, relation.shared_from_this(), bias, s); },
      nb::arg("x"), nb::arg("weight"), nb::arg("relation"), nb::arg("bias") = nb::none(),
      nb::kw_only(), nb::arg("stream") = nb::none(),
      "y = sum over the edges (i, o, k) of x[i] weight[k], plus bias; weight is (K, G, C_in / G, "
      "C_out / G).");
}
