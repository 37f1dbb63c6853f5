// Convolutions and linear layers of sparse tensors. Arguments only.
#include "lattice/ops/conv.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"

using namespace lattice;
using namespace nb::literals;

// An array in one of the layouts of a weight, the same made ready for the CPU, or codes.
template <>
struct Argument<Weight> {
  static constexpr auto Name = nb::detail::const_name("ArrayLike | QuantizedWeight | PackedKernel");
  static Weight from(nb::handle value, At at) {
    if (const auto* codes = instance<QuantizedWeight>(value)) return *codes;
    if (const auto* packed = instance<PackedKernel>(value)) return *packed;
    return array(value, at);
  }
};

namespace {

using X = const SparseTensor&;
using W = const Weight&;
using Bias = const std::optional<mx::array>&;
using Size = const KernelSize&;
using By = const Triple&;  // stride, padding or dilation
using Target = const std::optional<TargetCoords>&;
using In = const std::optional<Bounds>&;
using Stream = mx::StreamOrDevice;
constexpr Triple kOne{1, 1, 1}, kZero{0, 0, 0};

void bind_packed_kernel(nb::module_& m) {
  nb::class_<PackedKernel>(
      m, "PackedKernel",
      "A dense weight together with the order in which the CPU reads it: what `ops.pack_kernel`\n"
      "makes. Convolutions take it in place of the array.")
      .def_prop_ro("weight", &PackedKernel::weight, nb::rv_policy::reference_internal,
                   "The array, as it was given.")
      .def_prop_ro("nbytes", &PackedKernel::nbytes, "Bytes beside those of the array.")
      .def("is_of", &PackedKernel::is_of, "weight"_a,
           "Whether `weight` is the array that was packed. An assigned, updated or loaded weight "
           "is\nanother array; equal values do not count.")
      .def("__copy__", [](const PackedKernel& self) { return self; })
      .def("__deepcopy__", [](const PackedKernel& self, nb::handle) { return self; })
      .def("__repr__", [](const PackedKernel& self) {
        return "PackedKernel(" + shape_text(self.weight().shape()) + ")";
      });
  def(m, "pack_kernel", &pack_kernel, "weight"_a, "groups"_a, "stream"_a, Unlocked());
}

void bind_forward(nb::module_& m) {
  def(
      m, "conv_norm",
      [](std::string_view kind, const std::vector<SparseTensor>& x, W weight, Bias bias,
         const mx::array& mean, const mx::array& var, Bias norm_weight, Bias norm_bias, float eps,
         const std::optional<SparseTensor>& residual, bool relu, Size size, By stride, By padding,
         By dilation, Target target, int64_t groups, In bounds, std::string_view order, Stream s) {
        const KernelSpec spec =
            reached_spec("conv_norm", size, stride, padding, dilation, bounds, order);
        return conv_norm(kind_named("conv_norm", kind), x, weight, bias, {spec, target, groups},
                         {mean, var, norm_weight, norm_bias, eps, residual, relu}, s);
      },
      "kind"_a, "x"_a, "weight"_a, "bias"_a, "mean"_a, "var"_a, "norm_weight"_a, "norm_bias"_a,
      "eps"_a, "residual"_a, "relu"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a,
      "coordinates"_a, "groups"_a, "bounds"_a, "order"_a, "stream"_a, Unlocked());
  def(
      m, "conv3d",
      [](X x, W weight, Bias bias, Size size, By stride, By padding, By dilation, Target target,
         int64_t groups, std::string_view support, In bounds, std::string_view order, Stream s) {
        const KernelSpec spec =
            reached_spec("conv3d", size, stride, padding, dilation, bounds, order);
        const Support how = support_named("conv3d", support);
        return conv3d(x, weight, bias, {spec, target, groups, how}, s);
      },
      "x"_a, "weight"_a, "bias"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a,
      "coordinates"_a, "groups"_a, "support"_a, "bounds"_a, "order"_a, "stream"_a, Unlocked());
  def(
      m, "inverse_conv3d",
      [](X x, W weight, const TargetCoords& fine, Bias bias, Size size, By stride, By padding,
         By dilation, int64_t groups, Stream s) {
        const KernelSpec spec = kernel_spec("inverse_conv3d", size, stride, padding, dilation);
        return inverse_conv3d(x, weight, fine, bias, {spec, std::nullopt, groups}, s);
      },
      "x"_a, "weight"_a, "fine"_a, "bias"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a,
      "groups"_a, "stream"_a, Unlocked());
  def(
      m, "subm_conv3d",
      [](X x, W weight, Bias bias, Size size, By dilation, int64_t groups, Stream s) {
        const KernelSpec spec = kernel_spec("subm_conv3d", size, kOne, kZero, dilation);
        return subm_conv3d(x, weight, bias, {spec, std::nullopt, groups}, s);
      },
      "x"_a, "weight"_a, "bias"_a, "kernel_size"_a, "dilation"_a, "groups"_a, "stream"_a,
      Unlocked());
  def(
      m, "normalized_subm_conv3d",
      [](X x, W weight, Bias bias, Size size, By dilation, int64_t groups, float eps, Stream s) {
        const KernelSpec spec = kernel_spec("normalized_subm_conv3d", size, kOne, kZero, dilation);
        return normalized_subm_conv3d(x, weight, bias, {spec, std::nullopt, groups}, eps, s);
      },
      "x"_a, "weight"_a, "bias"_a, "kernel_size"_a, "dilation"_a, "groups"_a, "eps"_a, "stream"_a,
      Unlocked());
}

void bind_transposed(nb::module_& m) {
  def(
      m, "conv_transpose3d",
      [](X x, W weight, Bias bias, Size size, By stride, By padding, By dilation, Target target,
         int64_t groups, std::string_view support, In bounds, std::string_view order, Stream s) {
        const KernelSpec spec =
            reached_spec("conv_transpose3d", size, stride, padding, dilation, bounds, order);
        const Support how = support_named("conv_transpose3d", support);
        return conv_transpose3d(x, weight, bias, {spec, target, groups, how}, s);
      },
      "x"_a, "weight"_a, "bias"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a,
      "coordinates"_a, "groups"_a, "support"_a, "bounds"_a, "order"_a, "stream"_a, Unlocked());
  def(
      m, "normalized_conv_transpose3d",
      [](X x, W weight, Bias bias, Size size, By stride, By padding, By dilation, Target target,
         int64_t groups, float eps, Stream s) {
        const KernelSpec spec =
            kernel_spec("normalized_conv_transpose3d", size, stride, padding, dilation);
        return normalized_conv_transpose3d(x, weight, bias, {spec, target, groups}, eps, s);
      },
      "x"_a, "weight"_a, "bias"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a,
      "coordinates"_a, "groups"_a, "eps"_a, "stream"_a, Unlocked());
  def(
      m, "generative_conv_transpose3d",
      [](X x, W weight, Bias bias, Size size, By stride, Target target, int64_t groups, Stream s) {
        const KernelSpec spec =
            kernel_spec("generative_conv_transpose3d", size, stride, kZero, kOne);
        return generative_conv_transpose3d(x, weight, bias, {spec, target, groups}, s);
      },
      "x"_a, "weight"_a, "bias"_a, "kernel_size"_a, "stride"_a, "coordinates"_a, "groups"_a,
      "stream"_a, Unlocked());
  def(
      m, "normalized_generative_conv_transpose3d",
      [](X x, W weight, Bias bias, Size size, By stride, Target target, int64_t groups, float eps,
         Stream s) {
        const KernelSpec spec =
            kernel_spec("normalized_generative_conv_transpose3d", size, stride, kZero, kOne);
        return normalized_generative_conv_transpose3d(x, weight, bias, {spec, target, groups}, eps,
                                                      s);
      },
      "x"_a, "weight"_a, "bias"_a, "kernel_size"_a, "stride"_a, "coordinates"_a, "groups"_a,
      "eps"_a, "stream"_a, Unlocked());
}

}  // namespace

void bind_conv(nb::module_& m) {
  bind_packed_kernel(m);
  bind_forward(m);
  bind_transposed(m);
  def(m, "linear", &linear, "x"_a, "weight"_a, "bias"_a, "stream"_a);
  def(m, "linear_features", &linear_features, "feats"_a, "weight"_a, "bias"_a, "stream"_a);
}
