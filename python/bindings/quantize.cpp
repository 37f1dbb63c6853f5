// Packed weights.
#include "lattice/ops/quantize.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_quantize(nb::module_& m) {
  using Q = QuantizedWeight;
  using Array = const mx::array&;
  const auto borrowed = nb::rv_policy::reference_internal;
  nb::class_<Q> c(m, "QuantizedWeight",
                  R"(A weight as codes of 4 or 8 bits, with a scale and a bias for each group of
input channels: scale * code + bias.

`quantize_weight` makes one, and convolutions and linear layers take it as their weight.

>>> import mlx.core as mx
>>> import mlx_lattice as ml
>>> q = ml.quantize_weight(mx.ones((8, 3, 3, 3, 32)))
>>> q.bits, q.in_channels, q.out_channels
(4, 32, 8))");
  def_init(
      c,
      [](Array weight, Array scales, Array biases, int64_t group_size, int64_t bits,
         int64_t in_channels, int64_t out_channels, const Triple& kernel_size,
         const std::string& layout) {
        return Q({.weight = weight,
                  .scales = scales,
                  .biases = biases,
                  .group_size = group_size,
                  .bits = bits,
                  .in_channels = in_channels,
                  .out_channels = out_channels,
                  .kernel_size = kernel_size,
                  .layout = layout_named(layout)});
      },
      "weight"_a, "scales"_a, "biases"_a, "group_size"_a, "bits"_a, "in_channels"_a,
      "out_channels"_a, "kernel_size"_a, "layout"_a);
  c.def_prop_ro("weight", &Q::weight, borrowed,
                "Codes, uint32: (1, C_out, words), or (K, words, C_out) when K > 1.")
      .def_prop_ro("scales", &Q::scales, borrowed, "One of each group.")
      .def_prop_ro("biases", &Q::biases, borrowed, "One of each group.")
      .def_prop_ro("group_size", &Q::group_size, "Input channels of a group.")
      .def_prop_ro("bits", &Q::bits)
      .def_prop_ro("in_channels", &Q::in_channels)
      .def_prop_ro("out_channels", &Q::out_channels)
      .def_prop_ro("kernel_size", [](const Q& q) { return to_python(q.kernel_size()); })
      .def_prop_ro(
          "layout", [](const Q& q) { return layout_name(q.layout()); },
          "linear, kernel_major or dense_5d.")
      .def_prop_ro("dtype", &Q::dtype, "Of scales and biases; features must have it.")
      .def_prop_ro("storage_in_channels", &Q::storage_in_channels,
                   "in_channels rounded up to the group.")
      .def_prop_ro("is_pointwise", &Q::is_pointwise)
      .def_prop_ro("nbytes", &Q::nbytes, "Of codes, scales and biases.")
      .def_prop_ro("form", &Q::form,
                   "Layout, sizes, bits and group in one line; files of packed weights say it.")
      .def("__repr__", &Q::text);

  def(m, "quantize_weight", &quantize_weight, "weight"_a, "group_size"_a, "bits"_a, "stream"_a);
  def(m, "dequantize_weight", &dequantize_weight, "weight"_a, "stream"_a);
}
