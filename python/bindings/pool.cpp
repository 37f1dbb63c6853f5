// Pooling of sparse tensors. Arguments only.
#include "lattice/ops/pool.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;

namespace {

using Stream = mx::StreamOrDevice;

void def_pool(nb::module_& m, const char* name, Reduction mode, const char* doc) {
  m.def(
      name,
      [name, mode](const SparseTensor& x, nb::handle size, nb::handle stride, nb::handle padding,
                   nb::handle dilation, Stream s) {
        const KernelSpec spec = kernel_spec(name, size, stride, padding, dilation);
        return unlocked([&] { return pool3d(x, mode, spec, s, name); });
      },
      nb::arg("x"), nb::kw_only(), nb::arg("kernel_size") = 2, nb::arg("stride") = 2,
      nb::arg("padding") = 0, nb::arg("dilation") = 1, nb::arg("stream") = nb::none(), doc);
}

std::optional<int64_t> optional_integer(nb::handle value, const char* operation,
                                        const char* argument) {
  if (value.is_none()) return std::nullopt;
  return integer(value, operation, argument);
}

void def_global(nb::module_& m, const char* name, Reduction mode, const char* doc) {
  m.def(
      name,
      [name, mode](const SparseTensor& x, nb::handle batch_size, Stream s) {
        const auto n = optional_integer(batch_size, name, "batch_size");
        return unlocked([&] { return global_pool(x, mode, n, s, name); });
      },
      nb::arg("x"), nb::kw_only(), nb::arg("batch_size") = nb::none(),
      nb::arg("stream") = nb::none(), doc);
}

}  // namespace

void bind_pool(nb::module_& m) {
  m.def(
      "pool3d",
      [](const SparseTensor& x, const std::string& mode, nb::handle size, nb::handle stride,
         nb::handle padding, nb::handle dilation, Stream s) {
        const Reduction how = parse_reduction(mode, "pool3d", "mode");
        const KernelSpec spec = kernel_spec("pool3d", size, stride, padding, dilation);
        return unlocked([&] { return pool3d(x, how, spec, s); });
      },
      nb::arg("x"), nb::kw_only(), nb::arg("mode") = "sum", nb::arg("kernel_size") = 2,
      nb::arg("stride") = 2, nb::arg("padding") = 0, nb::arg("dilation") = 1,
      nb::arg("stream") = nb::none(),
      "y[o] = sum, avg or max over the edges (i, o, k) of x[i]; 0 for a row without edges.");
  def_pool(m, "sum_pool3d", Reduction::sum, "pool3d with mode sum.");
  def_pool(m, "avg_pool3d", Reduction::mean,
           "pool3d with mode avg: divided by the number of edges of the row.");
  def_pool(m, "max_pool3d", Reduction::max,
           "pool3d with mode max; ties share the gradient equally.");
  m.def(
      "pool_transpose3d",
      [](const SparseTensor& x, nb::handle target, nb::handle size, nb::handle stride,
         nb::handle padding, nb::handle dilation, Stream s) {
        constexpr const char* kName = "pool_transpose3d";
        const auto where = target_coords(target, kName, "target");
        const KernelSpec spec = kernel_spec(kName, size, stride, padding, dilation);
        return unlocked([&] { return pool_transpose3d(x, where, spec, s); });
      },
      nb::arg("x"), nb::arg("target") = nb::none(), nb::kw_only(), nb::arg("kernel_size") = 2,
      nb::arg("stride") = 2, nb::arg("padding") = 0, nb::arg("dilation") = 1,
      nb::arg("stream") = nb::none(),
      "Mean of the contributors over the transposed relation, onto `target` where it is given.");
  m.def(
      "trilinear_upsample3d",
      [](const SparseTensor& x, nb::handle target, nb::handle stride, Stream s) {
        constexpr const char* kName = "trilinear_upsample3d";
        const auto where = target_coords(target, kName, "target");
        const Triple by = triple(stride, kName, "stride");
        return unlocked([&] { return trilinear_upsample3d(x, where, by, s); });
      },
      nb::arg("x"), nb::arg("target") = nb::none(), nb::kw_only(), nb::arg("stride") = 2,
      nb::arg("stream") = nb::none(),
      "Trilinear interpolation, divided by the sum of the weights that are present.");
  m.def(
      "global_pool",
      [](const SparseTensor& x, const std::string& mode, nb::handle batch_size, Stream s) {
        const Reduction how = parse_reduction(mode, "global_pool", "mode");
        const auto n = optional_integer(batch_size, "global_pool", "batch_size");
        return unlocked([&] { return global_pool(x, how, n, s); });
      },
      nb::arg("x"), nb::kw_only(), nb::arg("mode") = "sum", nb::arg("batch_size") = nb::none(),
      nb::arg("stream") = nb::none(), "(B, C): sum, avg or max over the rows of each batch item.");
  def_global(m, "global_sum_pool", Reduction::sum, "global_pool with mode sum.");
  def_global(m, "global_avg_pool", Reduction::mean, "global_pool with mode avg.");
  def_global(m, "global_max_pool", Reduction::max, "global_pool with mode max.");
  m.def("broadcast_add", &broadcast_add, nb::arg("x"), nb::arg("per_batch"), nb::kw_only(),
        nb::arg("stream") = nb::none(), "x[r] + per_batch[batch of r].");
  m.def("broadcast_mul", &broadcast_mul, nb::arg("x"), nb::arg("per_batch"), nb::kw_only(),
        nb::arg("stream") = nb::none(), "x[r] * per_batch[batch of r].");
  m.def("broadcast_cat", &broadcast_cat, nb::arg("x"), nb::arg("per_batch"), nb::kw_only(),
        nb::arg("stream") = nb::none(), "x[r] and per_batch[batch of r] side by side.");
}
