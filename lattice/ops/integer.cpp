#include "lattice/ops/integer.h"

#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/features/int_conv.h"
#include "lattice/ops/check.h"
#include "lattice/routes/int_conv.h"

namespace lattice {
namespace {

const char* const kOperation = "integer_conv";

// Features of all parts; those after the second are joined to it.
graph::Arrays checked_parts(const std::vector<SparseTensor>& x, const IntegerKernel& kernel,
                            mx::StreamOrDevice s) {
  if (x.empty()) fail(kOperation, "x needs at least one tensor, got none");
  graph::Arrays parts;
  int64_t channels = 0;
  for (const SparseTensor& part : x) {
    if (!part.same_coords(x[0])) fail(kOperation, "the tensors of x must share coordinates");
    if (part.dtype() != kernel.parts().input)
      fail(kOperation, "x must be " + graph::dtype_name(kernel.parts().input) +
                           " as the kernel's input, got " + graph::dtype_name(part.dtype()));
    channels += part.channels();
    parts.push_back(part.feats());
  }
  if (channels != kernel.in_channels())
    fail(kOperation, "the kernel has " + std::to_string(kernel.in_channels()) +
                         " input channels, got " + std::to_string(channels));
  if (parts.size() > 2) parts = {parts[0], mx::concatenate({parts.begin() + 1, parts.end()}, 1, s)};
  return parts;
}

Relation::Ptr find_relation(RelationKind kind, const SparseTensor& x, const ConvOptions& options,
                            mx::StreamOrDevice s) {
  if (options.groups != 1)
    fail(kOperation, "groups must be 1, got " + std::to_string(options.groups));
  const KernelSpec& spec = options.spec;
  if (!options.coordinates)
    return spec.is_pointwise() ? nullptr : relation(kind, x, spec, std::nullopt, s, kOperation);
  return relation(
      offsets_start_at_zero(kind) ? RelationKind::target_transposed : RelationKind::target, x, spec,
      options.coordinates, s, kOperation);
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
  const Relation::Ptr found = find_relation(kind, x[0], options, s);
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
  mx::array feats = routes::run(routes::int_conv_rows(), asked);
  SparseTensor y = found ? result_on(x[0], *found->out_key(), std::move(feats))
                         : x[0].with_feats(std::move(feats));
  if (residual) check_residual(*residual, kernel, y);
  return y;
}

mx::array quantize_features(const mx::array& feats, const mx::array& inverse,
                            mx::StreamOrDevice s) {
  const char* const op = "quantize_features";
  check_features(op, "feats", feats);
  if (inverse.ndim() != 1 || inverse.shape(0) != feats.shape(1))
    fail(op, "inverse must have shape (" + std::to_string(feats.shape(1)) + ",), got " +
                 shape_text(inverse.shape()));
  return graph::cpu_call(
      op, "",
      {graph::row_contiguous(as_float32(feats, s), s),
       graph::row_contiguous(as_float32(inverse, s), s)},
      {{feats.shape(), mx::int16}},
      [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::quantize_rows(in[0].as<float>(), in[0].shape[0], in[0].shape[1], in[1].as<float>(),
                           static_cast<int32_t>(cpu::int_input_most(cpu::IntType::i16)),
                           out[0].as<int16_t>());
      },
      s)[0];
}

}  // namespace lattice
