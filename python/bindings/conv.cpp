// Convolutions and linear layers of sparse tensors. Arguments only.
#include "lattice/ops/conv.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"

using namespace lattice;

namespace {

using Bias = const std::optional<mx::array>&;
using X = const SparseTensor&;
using Stream = mx::StreamOrDevice;

ConvOptions options(const char* operation, nb::handle size, nb::handle stride, nb::handle padding,
                    nb::handle dilation, nb::handle coordinates, nb::handle groups) {
  return {kernel_spec(operation, size, stride, padding, dilation),
          target_coords(coordinates, operation, "coordinates"),
          integer(groups, operation, "groups")};
}

}  // namespace

void bind_conv(nb::module_& m) {
  const nb::int_ one(1), two(2), three(3), zero(0);
  m.def(
      "conv3d",
      [](X x, const Weight& weight, Bias bias, nb::handle size, nb::handle stride,
         nb::handle padding, nb::handle dilation, nb::handle coordinates, nb::handle groups,
         Stream s) {
        const ConvOptions o =
            options("conv3d", size, stride, padding, dilation, coordinates, groups);
        return unlocked([&] { return conv3d(x, weight, bias, o, s); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(),
      nb::arg("kernel_size") = three, nb::arg("stride") = one, nb::arg("padding") = zero,
      nb::arg("dilation") = one, nb::arg("coordinates") = nb::none(), nb::arg("groups") = one,
      nb::arg("stream") = nb::none(),
      "y[o] = bias + sum over edges (i, o, k) of x[i] W[k]. Output coordinates: the distinct "
      "floor(c / stride), x's "
      "own at stride "
      "1, or `coordinates`.");

  m.def(
      "subm_conv3d",
      [](X x, const Weight& weight, Bias bias, nb::handle size, nb::handle dilation,
         nb::handle groups, Stream s) {
        const ConvOptions o =
            options("subm_conv3d", size, nb::int_(1), nb::int_(0), dilation, nb::none(), groups);
        return unlocked([&] { return subm_conv3d(x, weight, bias, o, s); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(),
      nb::arg("kernel_size") = three, nb::arg("dilation") = one, nb::arg("groups") = one,
      nb::arg("stream") = nb::none(),
      "Submanifold convolution: output coordinates are x's own. Odd sizes.");
  m.def(
      "normalized_subm_conv3d",
      [](X x, const Weight& weight, Bias bias, nb::handle size, nb::handle dilation,
         nb::handle groups, float eps, Stream s) {
        const ConvOptions o = options("normalized_subm_conv3d", size, nb::int_(1), nb::int_(0),
                                      dilation, nb::none(), groups);
        return unlocked([&] { return normalized_subm_conv3d(x, weight, bias, o, eps, s); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(),
      nb::arg("kernel_size") = three, nb::arg("dilation") = one, nb::arg("groups") = one,
      nb::arg("eps") = 1e-8, nb::arg("stream") = nb::none(),
      "subm_conv3d(x, W) / sqrt(subm_conv3d(1, W^2) + eps) + bias.");

  m.def(
      "conv_transpose3d",
      [](X x, const Weight& weight, Bias bias, nb::handle size, nb::handle stride,
         nb::handle padding, nb::handle dilation, nb::handle coordinates, nb::handle groups,
         Stream s) {
        const ConvOptions o =
            options("conv_transpose3d", size, stride, padding, dilation, coordinates, groups);
        return unlocked([&] { return conv_transpose3d(x, weight, bias, o, s); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(),
      nb::arg("kernel_size") = two, nb::arg("stride") = two, nb::arg("padding") = zero,
      nb::arg("dilation") = one, nb::arg("coordinates") = nb::none(), nb::arg("groups") = one,
      nb::arg("stream") = nb::none(),
      "Transposed convolution onto the distinct c * stride + offset - padding, or onto "
      "`coordinates`.");
  m.def(
      "normalized_conv_transpose3d",
      [](X x, const Weight& weight, Bias bias, nb::handle size, nb::handle stride,
         nb::handle padding, nb::handle dilation, nb::handle coordinates, nb::handle groups,
         float eps, Stream s) {
        const ConvOptions o = options("normalized_conv_transpose3d", size, stride, padding,
                                      dilation, coordinates, groups);
        return unlocked([&] { return normalized_conv_transpose3d(x, weight, bias, o, eps, s); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(),
      nb::arg("kernel_size") = two, nb::arg("stride") = two, nb::arg("padding") = zero,
      nb::arg("dilation") = one, nb::arg("coordinates") = nb::none(), nb::arg("groups") = one,
      nb::arg("eps") = 1e-8, nb::arg("stream") = nb::none(),
      "conv_transpose3d(x, W) / sqrt(conv_transpose3d(1, W^2) + eps) + bias.");
  m.def(
      "generative_conv_transpose3d",
      [](X x, const Weight& weight, Bias bias, nb::handle size, nb::handle stride,
         nb::handle coordinates, nb::handle groups, Stream s) {
        const ConvOptions o = options("generative_conv_transpose3d", size, stride, nb::int_(0),
                                      nb::int_(1), coordinates, groups);
        return unlocked([&] { return generative_conv_transpose3d(x, weight, bias, o, s); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(),
      nb::arg("kernel_size") = two, nb::arg("stride") = two, nb::arg("coordinates") = nb::none(),
      nb::arg("groups") = one, nb::arg("stream") = nb::none(),
      "Transposed convolution that makes its own support: one candidate per input row and offset.");
  m.def(
      "normalized_generative_conv_transpose3d",
      [](X x, const Weight& weight, Bias bias, nb::handle size, nb::handle stride,
         nb::handle coordinates, nb::handle groups, float eps, Stream s) {
        const ConvOptions o = options("normalized_generative_conv_transpose3d", size, stride,
                                      nb::int_(0), nb::int_(1), coordinates, groups);
        return unlocked(
            [&] { return normalized_generative_conv_transpose3d(x, weight, bias, o, eps, s); });
      },
      nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(), nb::kw_only(),
      nb::arg("kernel_size") = two, nb::arg("stride") = two, nb::arg("coordinates") = nb::none(),
      nb::arg("groups") = one, nb::arg("eps") = 1e-8, nb::arg("stream") = nb::none(),
      "generative_conv_transpose3d(x, W) / sqrt(generative_conv_transpose3d(1, W^2) + eps) + "
      "bias.");

  m.def("linear", &linear, nb::arg("x"), nb::arg("weight"), nb::arg("bias") = nb::none(),
        nb::kw_only(), nb::arg("stream") = nb::none(),
        "y = x W^T + bias on the features; weight (C_out, C_in).");
  m.def("linear_features", &linear_features, nb::arg("feats"), nb::arg("weight"),
        nb::arg("bias") = nb::none(), nb::kw_only(), nb::arg("stream") = nb::none(),
        "The same on an (N, C_in) array.");
}
