// Sums over triplets and point convolution. Arguments only.
#include "lattice/ops/triplets.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Array = const mx::array&;
using Optional = const std::optional<mx::array>&;
using Stream = mx::StreamOrDevice;
using Text = std::string_view;

MatrixLayout layout_of(Text name) {
  if (name == "gcm") return MatrixLayout::gcm;
  if (name == "gmc") return MatrixLayout::gmc;
  throw std::invalid_argument("[mvmr] layout must be gmc or gcm, got '" + std::string(name) + "'");
}

}  // namespace

void bind_triplets(nb::module_& m) {
  def(
      m, "mvmr",
      [](Array a, Optional a_rows, Array b, Optional b_rows, Array o_rows, int64_t n_o, Text layout,
         Stream s) { return mvmr(a, a_rows, b, b_rows, o_rows, n_o, layout_of(layout), s); },
      "a"_a, "a_idx"_a, "b"_a, "b_idx"_a, "o_idx"_a, "n_o"_a, "layout"_a, "stream"_a, Unlocked());
  def(
      m, "mvmr_on",
      [](Array a, Array b, const Relation& triplets, Text layout, Stream s) {
        return mvmr(a, b, triplets.shared_from_this(), layout_of(layout), s);
      },
      "a"_a, "b"_a, "triplets"_a, "layout"_a, "stream"_a);
  def(
      m, "vvor",
      [](Array a, Array a_rows, Array b, Array b_rows, Array o_rows, int64_t n_o, Stream s) {
        return vvor(a, a_rows, b, b_rows, o_rows, n_o, s);
      },
      "a"_a, "a_idx"_a, "b"_a, "b_idx"_a, "o_idx"_a, "n_o"_a, "stream"_a, Unlocked());
  def(
      m, "triplet_relation",
      [](Optional a_rows, Optional b_rows, Array o_rows, int64_t n_a, int64_t n_b, int64_t n_o) {
        return triplet_relation(a_rows, b_rows, o_rows, n_a, n_b, n_o);
      },
      "a_idx"_a, "b_idx"_a, "o_idx"_a, "n_a"_a, "n_b"_a, "n_o"_a, Unlocked());
  def(
      m, "point_conv",
      [](Array x, Array weight, const Relation& relation, Optional bias, Stream s) {
        return point_conv(x, weight, relation.shared_from_this(), bias, s);
      },
      "x"_a, "weight"_a, "relation"_a, "bias"_a, "stream"_a);
}
