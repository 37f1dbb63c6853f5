// Pooling of sparse tensors in programs; docs/ops/pool.md has the formulas.
#include "lattice/ops/pool.h"

#include "lattice/ops/reduce_rows.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

constexpr Operand kX{"x", "sparse"}, kTarget{"target", "sparse|array", Form::optional};
constexpr Attribute kBatchSize{"batch_size", Type::integer, true, -1, 0, 1 << 22};

void add_pool(std::vector<Operation>& rows, const char* name, Reduction mode) {
  rows.push_back({name,
                  1,
                  {kX},
                  {kKernelSize, kStride, kPadding, kDilation},
                  {"sparse"},
                  Phase::features,
                  [name, mode](const Call& call) -> Results {
                    return {pool3d(call.sparse("x"), mode, kernel_of(call), {}, name)};
                  }});
  rows.push_back({name,
                  2,
                  {kX},
                  {kKernelSize, kStride, kPadding, kDilation, kSupport, kBounds, kOrder},
                  {"sparse"},
                  Phase::features,
                  [name, mode](const Call& call) -> Results {
                    return {pool3d(call.sparse("x"), mode, reached_kernel_of(call), {}, name,
                                   support_of(call))};
                  }});
}

void add_global(std::vector<Operation>& rows, const char* name, Reduction mode) {
  rows.push_back({name,
                  1,
                  {kX},
                  {kBatchSize},
                  {"array"},
                  Phase::features,
                  [name, mode](const Call& call) -> Results {
                    return {global_pool(call.sparse("x"), mode, call.optional_integer("batch_size"),
                                        {}, name)};
                  }});
}

template <typename F>
void add_broadcast(std::vector<Operation>& rows, const char* name, F f) {
  rows.push_back({name,
                  1,
                  {kX, {"per_batch", "array"}},
                  {},
                  {"sparse"},
                  Phase::features,
                  [f](const Call& call) -> Results {
                    return {f(call.sparse("x"), call.array("per_batch"), mx::StreamOrDevice{})};
                  }});
}

Results run_pool(const Call& call) {
  return {pool3d(call.sparse("x"), parse_reduction(call.text("mode"), "pool3d", "mode"),
                 kernel_of(call))};
}

Results run_reaching_pool(const Call& call) {
  return {pool3d(call.sparse("x"), parse_reduction(call.text("mode"), "pool3d", "mode"),
                 reached_kernel_of(call), {}, "pool3d", support_of(call))};
}

Results run_global_pool(const Call& call) {
  return {global_pool(call.sparse("x"), parse_reduction(call.text("mode"), "global_pool", "mode"),
                      call.optional_integer("batch_size"))};
}

}  // namespace

std::vector<Operation> pool_operations() {
  const Attribute mode{"mode", Type::text};
  std::vector<Operation> rows{
      {"pool3d",
       1,
       {kX},
       {mode, kKernelSize, kStride, kPadding, kDilation},
       {"sparse"},
       Phase::features,
       run_pool},
      {"pool3d",
       2,
       {kX},
       {mode, kKernelSize, kStride, kPadding, kDilation, kSupport, kBounds, kOrder},
       {"sparse"},
       Phase::features,
       run_reaching_pool},
      {"pool_transpose3d",
       1,
       {kX, kTarget},
       {kKernelSize, kStride, kPadding, kDilation},
       {"sparse"},
       Phase::features,
       [](const Call& call) -> Results {
         return {pool_transpose3d(call.sparse("x"), target_of(call, "target"), kernel_of(call))};
       }},
      {"trilinear_upsample3d",
       1,
       {kX, kTarget},
       {{"stride", Type::integers, false, 3, 1, 16}},
       {"sparse"},
       Phase::features,
       [](const Call& call) -> Results {
         return {trilinear_upsample3d(call.sparse("x"), target_of(call, "target"),
                                      call.triple("stride"))};
       }},
      {"global_pool", 1, {kX}, {mode, kBatchSize}, {"array"}, Phase::features, run_global_pool},
  };
  add_pool(rows, "sum_pool3d", Reduction::sum);
  add_pool(rows, "avg_pool3d", Reduction::mean);
  add_pool(rows, "max_pool3d", Reduction::max);
  add_global(rows, "global_sum_pool", Reduction::sum);
  add_global(rows, "global_avg_pool", Reduction::mean);
  add_global(rows, "global_max_pool", Reduction::max);
  add_broadcast(rows, "broadcast_add", broadcast_add);
  add_broadcast(rows, "broadcast_mul", broadcast_mul);
  add_broadcast(rows, "broadcast_cat", broadcast_cat);
  return rows;
}

}  // namespace lattice::program
