// Pooling of sparse tensors. Arguments only.
#include "lattice/ops/pool.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"
#include "lattice/ops/reduce_rows.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using X = const SparseTensor&;
using Size = const KernelSize&;
using By = const Triple&;  // stride, padding or dilation
using Target = const std::optional<TargetCoords>&;
using In = const std::optional<Bounds>&;
using Count = const std::optional<int64_t>&;
using Stream = mx::StreamOrDevice;

Ties ties_named(const char* operation, std::string_view name) {
  if (name == "split") return Ties::split;
  if (name == "all") return Ties::all;
  if (name == "first") return Ties::first;
  fail(operation,
       "ties must be \"split\", \"all\" or \"first\", got \"" + std::string(name) + "\"");
}

void def_pool(nb::module_& m, const char* name, Reduction mode) {
  def(
      m, name,
      [name, mode](X x, Size size, By stride, By padding, By dilation, std::string_view support,
                   In bounds, std::string_view order, std::string_view ties, Stream s) {
        const KernelSpec spec = reached_spec(name, size, stride, padding, dilation, bounds, order);
        return pool3d(x, mode, spec, s, name, support_named(name, support), ties_named(name, ties));
      },
      "x"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a, "support"_a, "bounds"_a,
      "order"_a, "ties"_a, "stream"_a, Unlocked());
}

void def_global(nb::module_& m, const char* name, Reduction mode) {
  def(
      m, name,
      [name, mode](X x, Count batch_size, Stream s) {
        return global_pool(x, mode, batch_size, s, name);
      },
      "x"_a, "batch_size"_a, "stream"_a, Unlocked());
}

}  // namespace

void bind_pool(nb::module_& m) {
  def(
      m, "pool3d",
      [](X x, std::string_view mode, Size size, By stride, By padding, By dilation,
         std::string_view support, In bounds, std::string_view order, std::string_view ties,
         Stream s) {
        const Reduction how = parse_reduction(mode, "pool3d", "mode");
        const KernelSpec spec =
            reached_spec("pool3d", size, stride, padding, dilation, bounds, order);
        return pool3d(x, how, spec, s, "pool3d", support_named("pool3d", support),
                      ties_named("pool3d", ties));
      },
      "x"_a, "mode"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a, "support"_a,
      "bounds"_a, "order"_a, "ties"_a, "stream"_a, Unlocked());
  def_pool(m, "sum_pool3d", Reduction::sum);
  def_pool(m, "avg_pool3d", Reduction::mean);
  def_pool(m, "max_pool3d", Reduction::max);
  def(
      m, "pool_transpose3d",
      [](X x, Target target, Size size, By stride, By padding, By dilation, Stream s) {
        const KernelSpec spec = kernel_spec("pool_transpose3d", size, stride, padding, dilation);
        return pool_transpose3d(x, target, spec, s);
      },
      "x"_a, "target"_a, "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a, "stream"_a,
      Unlocked());
  def(
      m, "trilinear_upsample3d",
      [](X x, Target target, By stride, Stream s) {
        return trilinear_upsample3d(x, target, stride, s);
      },
      "x"_a, "target"_a, "stride"_a, "stream"_a, Unlocked());
  def(
      m, "global_pool",
      [](X x, std::string_view mode, Count batch_size, Stream s) {
        return global_pool(x, parse_reduction(mode, "global_pool", "mode"), batch_size, s);
      },
      "x"_a, "mode"_a, "batch_size"_a, "stream"_a, Unlocked());
  def_global(m, "global_sum_pool", Reduction::sum);
  def_global(m, "global_avg_pool", Reduction::mean);
  def_global(m, "global_max_pool", Reduction::max);
  def(m, "broadcast_add", &broadcast_add, "x"_a, "per_batch"_a, "stream"_a);
  def(m, "broadcast_mul", &broadcast_mul, "x"_a, "per_batch"_a, "stream"_a);
  def(m, "broadcast_cat", &broadcast_cat, "x"_a, "per_batch"_a, "stream"_a);
}
