#include "lattice/ops/integer.h"

#include <mlx/ops.h>

#include <bit>
#include <cstdint>

#include "lattice/core/arrays.h"
#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/features/int_pool.h"
#include "lattice/ops/batch_rows.h"
#include "lattice/ops/check.h"
#include "lattice/routes/int_conv.h"

namespace lattice {
namespace {

const char* const kOperation = "integer_conv";

void check_input(const std::string& op, const mx::array& x, const IntegerKernel& kernel) {
  const mx::Dtype expected = stored_dtype(kernel.parts().input);
  if (x.dtype() != expected)
    fail(op, "x must be " + graph::dtype_name(expected) + " as the kernel's input, got " +
                 graph::dtype_name(x.dtype()) + "; quantize_features(...) makes it of floats");
}

// Features of all parts; those after the second are joined to it.
graph::Arrays checked_parts(const std::vector<SparseTensor>& x, const IntegerKernel& kernel,
                            mx::StreamOrDevice s) {
  if (x.empty()) fail(kOperation, "x needs at least one tensor, got none");
  graph::Arrays parts;
  int64_t channels = 0;
  for (const SparseTensor& part : x) {
    if (!part.same_coords(x[0])) fail(kOperation, "the tensors of x must share coordinates");
    check_input(kOperation, part.feats(), kernel);
    channels += part.channels();
    parts.push_back(part.feats());
  }
  if (channels != kernel.in_channels())
    fail(kOperation, "the kernel has " + std::to_string(kernel.in_channels()) +
                         " input channels, got " + std::to_string(channels));
  if (parts.size() > 2) parts = {parts[0], mx::concatenate({parts.begin() + 1, parts.end()}, 1, s)};
  return parts;
}

void check_residual(const SparseTensor& residual, const IntegerKernel& kernel,
                    const SparseTensor& y) {
  if (residual.dtype() != *kernel.parts().residual || residual.channels() != kernel.out_channels())
    fail(kOperation, "residual must have " + std::to_string(kernel.out_channels()) +
                         " channels of " + graph::dtype_name(*kernel.parts().residual) + ", got " +
                         residual.text());
  if (!residual.same_coords(y)) fail(kOperation, "residual must share the result's coordinates");
}

}  // namespace

SparseTensor integer_conv(RelationKind kind, const std::vector<SparseTensor>& x,
                          const IntegerKernel& kernel, const ConvOptions& options,
                          const std::optional<SparseTensor>& residual, mx::StreamOrDevice s) {
  const graph::Arrays parts = checked_parts(x, kernel, s);
  if (options.groups != 1)
    fail(kOperation, "groups must be 1, got " + std::to_string(options.groups));
  const Relation::Ptr found = find_relation(kOperation, kind, x[0], options, s);
  const Relation::Ptr r = found ? found : Relation::identity(x[0].active_count());
  if (r->n_kernels() != kernel.n_k())
    fail(kOperation, "the kernel has " + std::to_string(kernel.n_k()) +
                         " offsets, kernel_size asks for " + std::to_string(r->n_kernels()));
  if (residual.has_value() != kernel.parts().factor.has_value())
    fail(kOperation, kernel.parts().factor ? "the kernel adds a residual, got none"
                                           : "the kernel adds no residual, got one");
  routes::IntConvAsked asked{.relation = r, .kernel = kernel, .x = parts[0], .stream = s};
  if (parts.size() == 2) asked.more = parts[1];
  if (residual) {
    if (residual->active_count() != r->n_out())
      fail(kOperation, "residual must share the result's coordinates");
    asked.residual = residual->feats();
  }
  SparseTensor y = on_outputs(x[0], found, routes::run(routes::int_conv_rows(), asked));
  if (residual) check_residual(*residual, kernel, y);
  return y;
}

mx::array integer_linear(const mx::array& x, const IntegerKernel& kernel, mx::StreamOrDevice s) {
  const char* const op = "integer_linear";
  if (x.ndim() != 2 || x.shape(1) != kernel.in_channels() || kernel.n_k() != 1)
    fail(op, "x must have shape (N, C_in) of a kernel of one offset, got " + shape_text(x.shape()) +
                 " and a kernel of " + std::to_string(kernel.n_k()) + " offsets and " +
                 std::to_string(kernel.in_channels()) + " input channels");
  check_input(op, x, kernel);
  if (kernel.parts().factor) fail(op, "the kernel adds a residual; integer_conv takes one");
  return routes::run(
      routes::int_conv_rows(),
      {.relation = Relation::identity(x.shape(0)), .kernel = kernel, .x = x, .stream = s});
}

mx::array quantize_features(const mx::array& feats, const mx::array& inverse, mx::Dtype format,
                            mx::StreamOrDevice s) {
  const char* const op = "quantize_features";
  check_features(op, "feats", feats);
  if (inverse.ndim() != 1 || inverse.shape(0) != feats.shape(1))
    fail(op, "inverse must have shape (" + std::to_string(feats.shape(1)) + ",), got " +
                 shape_text(inverse.shape()));
  if (format != mx::int8 && format != mx::int16)
    fail(op, "format must be int8 or int16, got " + graph::dtype_name(format));
  return graph::cpu_call(
      op, graph::dtype_name(format),
      {graph::row_contiguous(as_float32(feats, s), s),
       graph::row_contiguous(as_float32(inverse, s), s)},
      {{feats.shape(), stored_dtype(format)}},
      [format](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::quantize_rows(in[0].as<float>(), in[0].shape[0], in[0].shape[1], in[1].as<float>(),
                           int_type(format), out[0].data);
      },
      s)[0];
}

namespace {

mx::array pooled(const std::string& op, const mx::array& x, const Relation::Ptr& r, Reduction mode,
                 float scale, mx::Dtype output, mx::StreamOrDevice s) {
  if (x.dtype() != mx::uint8)
    fail(op, "x must be uint8, got " + graph::dtype_name(x.dtype()) + "; pool3d takes floats");
  if (mode == Reduction::min) fail(op, "mode must be sum, mean or max, got min");
  if (!(scale > 0 && scale <= 3e38f)) fail(op, "scale must be positive and finite");
  if (output != mx::uint8 && output != mx::int16 && output != mx::float32)
    fail(op, "output must be uint8, int16 or float32, got " + graph::dtype_name(output));
  const std::string key = std::to_string(reinterpret_cast<std::uintptr_t>(r.get())) + "/" +
                          std::to_string(static_cast<int>(mode)) + "/" +
                          std::to_string(std::bit_cast<uint32_t>(scale));
  return graph::cpu_call(
      op, key, {graph::row_contiguous(x, s)},
      {{{static_cast<int>(r->n_out()), x.shape(1)}, output}},
      [=](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::int_pool(r->lists(), r->tiles(), in[0].as<uint8_t>(), in[0].shape[1], mode, scale,
                      int_type(output), out[0].data);
      },
      s)[0];
}

}  // namespace

SparseTensor integer_pool(const SparseTensor& x, Reduction mode, const KernelSpec& spec,
                          float scale, mx::StreamOrDevice s) {
  const char* const op = "integer_pool";
  const Relation::Ptr r = relation(RelationKind::forward, x, spec, std::nullopt, s, op);
  return result_on(x, *r->out_key(), pooled(op, x.feats(), r, mode, scale, mx::uint8, s));
}

mx::array integer_global_pool(const SparseTensor& x, Reduction mode, float scale, mx::Dtype output,
                              mx::StreamOrDevice s) {
  const std::string op = "integer_global_pool";
  if (x.active_count() >= cpu::kIntPoolMost)
    fail(op, "x must have fewer than 2^23 rows, got " + std::to_string(x.active_count()));
  const Relation::Ptr r = Relation::from_lists(batch_groups(x, batch_items(op, x))->lists());
  return pooled(op, x.feats(), r, mode, scale, output, s);
}

mx::array dequantize_features(const mx::array& feats, float step, mx::Dtype format,
                              mx::StreamOrDevice s) {
  const char* const op = "dequantize_features";
  if (feats.dtype() != mx::uint8)
    fail(op, "feats must be uint8, got " + graph::dtype_name(feats.dtype()));
  if (format != mx::uint8 && format != mx::int8)
    fail(op, "format must be uint8 or int8, got " + graph::dtype_name(format));
  const mx::array zero(static_cast<float>(cpu::int_zero(int_type(format))));
  return mx::multiply(mx::subtract(mx::astype(feats, mx::float32, s), zero, s), mx::array(step), s);
}

}  // namespace lattice
