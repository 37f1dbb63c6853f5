#include "lattice/core/integer_kernel.h"

#include <stdexcept>
#include <vector>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/features/int_conv.h"

namespace lattice {
namespace {

const char* const kOperation = "IntegerKernel";

std::string layer_text(const std::string& name) {
  return name.empty() ? "" : "layer \"" + name + "\": ";
}

// What kernels throw, with the operation and the layer in front.
template <typename F>
auto about_layer(std::string_view operation, const std::string& name, const F& f) {
  try {
    return f();
  } catch (const std::invalid_argument& e) {
    fail(operation, layer_text(name) + e.what());
  }
}

void check_dtype(const std::string& name, const char* what, mx::Dtype found,
                 const std::vector<mx::Dtype>& known) {
  std::string words;
  for (const mx::Dtype dtype : known) {
    if (dtype == found) return;
    words += (words.empty() ? "" : ", ") + graph::dtype_name(dtype);
  }
  fail(kOperation,
       layer_text(name) + what + " must be one of " + words + ", got " + graph::dtype_name(found));
}
const std::vector<mx::Dtype> kInputs{mx::uint8, mx::int8, mx::int16},
    kOutputs{mx::uint8, mx::int8, mx::int16, mx::float32}, kResiduals{mx::uint8, mx::int16};

mx::array checked(const mx::array& a, const char* what, mx::Dtype dtype, const mx::Shape& shape,
                  const std::string& name) {
  if (a.dtype() != dtype || a.shape() != shape)
    fail(kOperation, layer_text(name) + what + " must have shape " + shape_text(shape) + " and " +
                         graph::dtype_name(dtype) + ", got " + shape_text(a.shape()) + " and " +
                         graph::dtype_name(a.dtype()));
  return private_copy(evaluated(a, kOperation, what));
}

void check_finite(const mx::array& scale, const std::string& name) {
  for (size_t i = 0; i < scale.size(); ++i)
    if (const float v = scale.data<float>()[i]; !(v >= 0 && v <= 3e38f))
      fail(kOperation, layer_text(name) + "scale must be finite and >= 0, got " +
                           std::to_string(v) + " for output channel " + std::to_string(i));
}

}  // namespace

cpu::IntType int_type(mx::Dtype dtype) {
  return dtype == mx::uint8   ? cpu::IntType::u8
         : dtype == mx::int8  ? cpu::IntType::s8
         : dtype == mx::int16 ? cpu::IntType::i16
                              : cpu::IntType::f32;
}

cpu::IntLayer layer_of(const IntegerParts& parts) {
  cpu::IntLayer layer{.in = int_type(parts.input),
                      .n_k = parts.weight.shape(0),
                      .c_in = parts.weight.shape(1),
                      .c_out = parts.weight.shape(2),
                      .w = parts.weight.data<int8_t>(),
                      .bias = parts.bias.data<int32_t>(),
                      .scale = parts.scale.data<float>()};
  if (parts.factor) layer.factor = parts.factor->data<int32_t>();
  if (parts.residual) layer.residual = int_type(*parts.residual);
  return layer;
}

IntegerKernel::IntegerKernel(IntegerParts parts, const std::string& name)
    : given_(parts), parts_(std::move(parts)) {
  if (parts_.weight.ndim() != 3 || parts_.weight.size() == 0)
    fail(kOperation, layer_text(name) + "weight must have shape (K, C_in, C_out), got " +
                         shape_text(parts_.weight.shape()));
  if (parts_.factor.has_value() != parts_.residual.has_value())
    fail(kOperation, layer_text(name) + "factor and residual belong together, got one of them");
  check_dtype(name, "input", parts_.input, kInputs);
  check_dtype(name, "output", parts_.output, kOutputs);
  if (parts_.residual) check_dtype(name, "residual", *parts_.residual, kResiduals);
  if (parts_.table && stored_dtype(parts_.output) != mx::uint8)
    fail(kOperation, layer_text(name) + "a table needs an output of uint8 or int8, got " +
                         graph::dtype_name(parts_.output));
  const mx::Shape channels = {parts_.weight.shape(2)};
  // Private copies: Python may write into the arrays that it gave, and these are proven.
  parts_.weight = checked(parts_.weight, "weight", mx::int8, parts_.weight.shape(), name);
  parts_.bias = checked(parts_.bias, "bias", mx::int32, channels, name);
  parts_.scale = checked(parts_.scale, "scale", mx::float32, channels, name);
  check_finite(parts_.scale, name);
  if (parts_.table) parts_.table = checked(*parts_.table, "table", mx::uint8, {256}, name);
  if (parts_.factor) parts_.factor = checked(*parts_.factor, "factor", mx::int32, channels, name);
  const cpu::IntLayer layer = layer_of(parts_);
  packed_ =
      about_layer(kOperation, name, [&] { return std::make_shared<const cpu::IntWeight>(layer); });
  share_ = cpu::share_of_int32(layer);
}

IntegerCodes round_kernel(const mx::array& weight, const mx::array& least,
                          const std::optional<mx::array>& whole, mx::Dtype input,
                          const std::string& name) {
  const char* const op = "round_kernel";
  if (weight.ndim() != 3 || weight.dtype() != mx::float32)
    fail(op, layer_text(name) + "weight must be (K, C_in, C_out) float32, got " +
                 shape_text(weight.shape()) + " " + graph::dtype_name(weight.dtype()));
  check_dtype(name, "input", input, kInputs);
  const mx::Shape channels = {weight.shape(2)};
  const mx::array w = evaluated(weight, op, "weight");
  const mx::array low = checked(least, "least", mx::float32, channels, name);
  const auto span = [](const mx::array& a) {
    return std::span<const float>(a.data<float>(), a.size());
  };
  std::optional<mx::array> exact;
  if (whole) exact = checked(*whole, "whole", mx::float32, channels, name);
  cpu::IntCodes made = about_layer(op, name, [&] {
    return cpu::round_weights(w.data<float>(), w.shape(0), w.shape(1), w.shape(2), span(low),
                              exact ? span(*exact) : std::span<const float>(), input != mx::int16);
  });
  return {adopt(std::move(made.w), weight.shape()), adopt(std::move(made.unit), channels)};
}

}  // namespace lattice
