// Packed weights.
#include "lattice/ops/quantize.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;

void bind_quantize(nb::module_& m) {
  using Q = QuantizedWeight;
  const auto borrowed = nb::rv_policy::reference_internal;
  nb::class_<Q>(
      m, "QuantizedWeight",
      "A weight as codes of 4 or 8 bits with a scale and a bias for each group of input channels.")
      .def(
          "__init__",
          [](Q* self, const Given& weight, const Given& scales, const Given& biases,
             nb::handle group_size, nb::handle bits, nb::handle in_channels,
             nb::handle out_channels, nb::handle kernel_size, const std::string& layout) {
            const char* op = "QuantizedWeight";
            new (self) Q({.weight = *weight,
                          .scales = *scales,
                          .biases = *biases,
                          .group_size = integer(group_size, op, "group_size"),
                          .bits = integer(bits, op, "bits"),
                          .in_channels = integer(in_channels, op, "in_channels"),
                          .out_channels = integer(out_channels, op, "out_channels"),
                          .kernel_size = triple(kernel_size, op, "kernel_size"),
                          .layout = layout_named(layout)});
          },
          nb::arg("weight"), nb::arg("scales"), nb::arg("biases"), nb::arg("group_size"),
          nb::arg("bits"), nb::arg("in_channels"), nb::arg("out_channels"), nb::arg("kernel_size"),
          nb::arg("layout"))
      .def_prop_ro("weight", &Q::weight, borrowed,
                   "Codes, uint32: (1, C_out, words), or (K, words, C_out) when K > 1.")
      .def_prop_ro("scales", &Q::scales, borrowed)
      .def_prop_ro("biases", &Q::biases, borrowed)
      .def_prop_ro("group_size", &Q::group_size)
      .def_prop_ro("bits", &Q::bits)
      .def_prop_ro("in_channels", &Q::in_channels)
      .def_prop_ro("out_channels", &Q::out_channels)
      .def_prop_ro("kernel_size", [](const Q& q) { return to_python(q.kernel_size()); })
      .def_prop_ro("layout", [](const Q& q) { return layout_name(q.layout()); })
      .def_prop_ro("dtype", &Q::dtype, "Of scales and biases; features must have it.")
      .def_prop_ro("storage_in_channels", &Q::storage_in_channels,
                   "in_channels rounded up to the group.")
      .def_prop_ro("is_pointwise", &Q::is_pointwise)
      .def_prop_ro("nbytes", &Q::nbytes, "Of codes, scales and biases.")
      .def_prop_ro("form", &Q::form,
                   "Layout, sizes, bits and group in one line; files of packed weights say it.")
      .def("__repr__", &Q::text);

  m.def(
      "quantize_weight",
      [](const mx::array& weight, nb::handle group_size, nb::handle bits, mx::StreamOrDevice s) {
        std::optional<int64_t> group;
        if (!group_size.is_none()) group = integer(group_size, "quantize_weight", "group_size");
        return quantize_weight(weight, group, integer(bits, "quantize_weight", "bits"), s);
      },
      nb::arg("weight"), nb::kw_only(), nb::arg("group_size") = nb::none(),
      nb::arg("bits") = nb::int_(4), nb::arg("stream") = nb::none(),
      "Packs (C_out, C_in), (K, C_in, C_out) or (C_out, Kx, Ky, Kz, C_in) along C_in, as "
      "mx.quantize(mode=\"affine\") "
      "does.");
  m.def(
      "dequantize_weight", &dequantize_weight, nb::arg("q"), nb::kw_only(),
      nb::arg("stream") = nb::none(),
      "scale * code + bias in the dense layout: float32, rounded once to the dtype of the scales.");
}
