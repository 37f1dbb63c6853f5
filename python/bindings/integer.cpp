// Layers in exact integers. Arguments only.
#include "lattice/ops/integer.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/ops/reduce_rows.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Array = const mx::array&;
using Maybe = const std::optional<mx::array>&;

mx::Dtype dtype_named(std::string_view name) {
  for (const mx::Dtype dtype : {mx::uint8, mx::int8, mx::int16, mx::float32})
    if (name == graph::dtype_name(dtype)) return dtype;
  fail("integers", "a format is \"uint8\", \"int8\", \"int16\" or \"float32\", got \"" +
                       std::string(name) + "\"");
}

void bind_kernel(nb::module_& m) {
  using K = IntegerKernel;
  nb::class_<K> c(m, "IntegerKernel",
                  R"(A layer in exact integers: int8 weights, bias and scale of each output channel.

A kernel that exists is proven: no input can make a sum overflow or a 16-bit step saturate.)");
  def_init(
      c,
      [](Array weight, Array bias, Array scale, Maybe factor, std::string_view input,
         std::string_view output, const std::optional<std::string>& residual, bool relu,
         Maybe table, const std::string& name) {
        IntegerParts parts{.weight = weight,
                           .bias = bias,
                           .scale = scale,
                           .factor = factor,
                           .input = dtype_named(input),
                           .output = dtype_named(output),
                           .relu = relu,
                           .table = table};
        if (residual) parts.residual = dtype_named(*residual);
        return K(std::move(parts), name);
      },
      "weight"_a, "bias"_a, "scale"_a, "factor"_a = nb::none(), "input"_a = "uint8",
      "output"_a = "uint8", "residual"_a = nb::none(), "relu"_a = false, "table"_a = nb::none(),
      "name"_a = "");
  c.def_prop_ro("in_channels", &K::in_channels)
      .def_prop_ro("out_channels", &K::out_channels)
      .def_prop_ro("offsets", &K::n_k, "K, the number of kernel offsets.")
      .def_prop_ro(
          "arrays",
          [](const K& k) {
            const IntegerParts& p = k.given();
            return std::make_tuple(p.weight, p.bias, p.scale, p.factor, p.table);
          },
          "weight, bias, scale, factor and table, as they were given.")
      .def_prop_ro(
          "form",
          [](const K& k) {
            const IntegerParts& p = k.parts();
            std::optional<std::string> residual;
            if (p.residual) residual = graph::dtype_name(*p.residual);
            return std::make_tuple(graph::dtype_name(p.input), graph::dtype_name(p.output),
                                   residual, p.relu);
          },
          "Formats of input, output and residual, and whether a float output is a ReLU.")
      .def_prop_ro("share_of_range", &K::share_of_range,
                   "The largest part of int32 that a sum can use, for any input.");
}

}  // namespace

void bind_integer(nb::module_& m) {
  bind_kernel(m);
  def(
      m, "round_kernel",
      [](Array weight, Array least, Maybe whole, std::string_view input, const std::string& name) {
        const IntegerCodes made = round_kernel(weight, least, whole, dtype_named(input), name);
        return std::make_tuple(made.codes, made.unit);
      },
      "weight"_a, "least"_a, "whole"_a, "input"_a, "name"_a, Unlocked());
  def(
      m, "quantize_features",
      [](Array feats, Array inverse, std::string_view format, mx::StreamOrDevice s) {
        return quantize_features(feats, inverse, dtype_named(format), s);
      },
      "feats"_a, "inverse"_a, "format"_a, "stream"_a, Unlocked());
  def(
      m, "dequantize_features",
      [](Array feats, float step, std::string_view format, mx::StreamOrDevice s) {
        return dequantize_features(feats, step, dtype_named(format), s);
      },
      "feats"_a, "step"_a, "format"_a, "stream"_a, Unlocked());
  def(m, "integer_linear", &integer_linear, "x"_a, "kernel"_a, "stream"_a, Unlocked());
  def(
      m, "integer_conv",
      [](std::string_view kind, const std::vector<SparseTensor>& x, const IntegerKernel& kernel,
         const std::optional<SparseTensor>& residual, const KernelSize& size, const Triple& stride,
         const Triple& padding, const Triple& dilation, const std::optional<TargetCoords>& target,
         std::string_view order, mx::StreamOrDevice s) {
        const KernelSpec spec =
            reached_spec("integer_conv", size, stride, padding, dilation, std::nullopt, order);
        return integer_conv(kind_named("integer_conv", kind), x, kernel, {spec, target, 1},
                            residual, s);
      },
      "kind"_a, "x"_a, "kernel"_a, "residual"_a, "kernel_size"_a, "stride"_a, "padding"_a,
      "dilation"_a, "coordinates"_a, "order"_a, "stream"_a, Unlocked());
  def(
      m, "integer_pool",
      [](const SparseTensor& x, std::string_view mode, const KernelSize& size, const Triple& stride,
         const Triple& padding, const Triple& dilation, float scale, mx::StreamOrDevice s) {
        const KernelSpec spec = kernel_spec("integer_pool", size, stride, padding, dilation);
        return integer_pool(x, parse_reduction(mode, "integer_pool", "mode"), spec, scale, s);
      },
      "x"_a, "mode"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a, "scale"_a,
      "stream"_a, Unlocked());
  def(
      m, "integer_global_pool",
      [](const SparseTensor& x, std::string_view mode, float scale, std::string_view output,
         mx::StreamOrDevice s) {
        return integer_global_pool(x, parse_reduction(mode, "integer_global_pool", "mode"), scale,
                                   dtype_named(output), s);
      },
      "x"_a, "mode"_a, "scale"_a, "output"_a, "stream"_a, Unlocked());
}
