#include "lattice/ops/pool_routes.h"

#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/features/pool.h"
#include "lattice/ops/pool_metal.h"
#include "lattice/ops/pool_mlx.h"
#include "lattice/ops/row_groups.h"
#include "lattice/ops/segments_metal.h"

namespace lattice {
namespace {

Rejection always(const Call&) { return {}; }

std::string address(const void* p) { return std::to_string(reinterpret_cast<std::uintptr_t>(p)); }

cpu::RowArray rows_of(const graph::Input& in) {
  return {float_type_of(in.dtype), in.data, in.shape[0], in.shape[1]};
}

// A node that runs kernel(inputs, output); `key` spells out what else it depends on.
template <typename Kernel>
mx::array node(const Call& call, const char* route, std::string key, Kernel kernel) {
  std::vector<mx::array> inputs;
  for (const mx::array& a : call.inputs) inputs.push_back(graph::row_contiguous(a, call.stream));
  return graph::cpu_call(
      call.operation + "." + route, std::move(key), std::move(inputs),
      {{{static_cast<int>(call.n_out()), static_cast<int>(call.c_out)}, call.dtype}},
      [kernel, operation = call.operation, name = std::string(route)](
          std::span<const graph::Input> in, std::span<const graph::Output> out) {
        count_run(operation, name);
        kernel(in, out[0].data);
      },
      call.stream)[0];
}

cpu::PoolMode pool_mode(const std::string& mode) {
  if (mode == "mean") return cpu::PoolMode::mean;
  if (mode == "spread") return cpu::PoolMode::spread;
  if (mode == "min") return cpu::PoolMode::min;
  return mode == "max" ? cpu::PoolMode::max : cpu::PoolMode::sum;
}

cpu::Reduction reduction_of(const std::string& mode) {
  if (mode == "mean") return cpu::Reduction::mean;
  if (mode == "min") return cpu::Reduction::min;
  return mode == "max" ? cpu::Reduction::max : cpu::Reduction::sum;
}

template <bool kReference>
mx::array pool_node(const Call& call) {
  std::string key = address(call.relation.get()) + "/" + call.mode;
  for (const float w : call.offset_weights) key += "," + std::to_string(std::bit_cast<uint32_t>(w));
  return node(
      call, kReference ? "cpu.reference" : "cpu.tiles", std::move(key),
      [r = call.relation, mode = call.mode, weights = call.offset_weights](
          std::span<const graph::Input> in, void* y) {
        const float* w = weights.empty() ? nullptr : weights.data();
        const cpu::RelationLists& lists = r->lists();
        if (mode == "match") {
          kReference
              ? cpu::reference_pool_match(lists, in[0].data, in[1].data, rows_of(in[2]), y)
              : cpu::pool_match(lists, r->tiles(), in[0].data, in[1].data, rows_of(in[2]), y);
        } else if (mode == "share") {
          kReference
              ? cpu::reference_pool_share(lists, in[0].data, rows_of(in[1]), in[2].data, y)
              : cpu::pool_share(lists, r->tiles(), in[0].data, rows_of(in[1]), in[2].data, y);
        } else {
          kReference ? cpu::reference_pool(lists, rows_of(in[0]), pool_mode(mode), w, y)
                     : cpu::pool(lists, r->tiles(), rows_of(in[0]), pool_mode(mode), w, y);
        }
      });
}

template <bool kReference>
mx::array segments_node(const Call& call) {
  return node(
      call, kReference ? "cpu.reference" : "cpu.segments",
      address(call.groups_of_rows.get()) + "/" + call.mode,
      [groups = call.groups_of_rows, mode = call.mode](std::span<const graph::Input> in, void* y) {
        if (kReference)
          cpu::reference_pool(groups->lists(), rows_of(in[0]), pool_mode(mode), nullptr, y);
        else
          cpu::reduce_segments(groups->segments(), rows_of(in[0]), reduction_of(mode), y);
      });
}

mx::array argmax_node(const Call& call) {
  const cpu::Reduction kind = reduction_of(call.mode);
  return graph::cpu_call(
      "argmax",
      address(call.relation.get()) + "/" + address(call.groups_of_rows.get()) + "/" + call.mode,
      {graph::row_contiguous(call.inputs[0], call.stream)},
      {{{static_cast<int>(call.n_out()), static_cast<int>(call.c_out)}, mx::int32}},
      [kind, r = call.relation, groups = call.groups_of_rows](std::span<const graph::Input> in,
                                                              std::span<const graph::Output> out) {
        if (groups)
          cpu::argmax_segments(groups->segments(), rows_of(in[0]), out[0].as<int32_t>(), kind);
        else
          cpu::pool_argmax(r->lists(), r->tiles(), rows_of(in[0]), out[0].as<int32_t>(), kind);
      },
      call.stream)[0];
}

mx::array gather_node(const Call& call) {
  return node(
      call, "cpu.rows",
      address(call.groups_of_rows.get()) + "/" + std::to_string(std::bit_cast<uint32_t>(call.fill)),
      [groups = call.groups_of_rows, fill = call.fill](std::span<const graph::Input> in, void* y) {
        cpu::gather_rows(rows_of(in[0]), groups->group_of(), groups->n_rows(), fill, y);
      });
}

}  // namespace

void add_pool_routes(std::vector<Route>& rows) {
  const auto cpu = mx::Device::cpu, gpu = mx::Device::gpu;
  const std::string slow = "any shape: one value at a time, sums in float64";
  rows.push_back({"pool", cpu, "cpu.tiles",
                  "any shape: tiles of output rows, edges by row, sums in registers", always,
                  pool_node<false>});
  rows.push_back({"pool", cpu, "cpu.reference", slow, always, pool_node<true>});
  rows.push_back({"segments", cpu, "cpu.segments",
                  "any sizes of groups: sums in registers, long groups in pieces", always,
                  segments_node<false>});
  rows.push_back({"segments", cpu, "cpu.reference", slow, always, segments_node<true>});
  rows.push_back({"gather", cpu, "cpu.rows", "any shape: copies of rows", always, gather_node});
  rows.push_back({"argmax", cpu, "cpu.segments",
                  "any relation or groups: rows by segment, the smallest of ties", always,
                  argmax_node});
  rows.push_back({"pool", gpu, "metal.rows",
                  "any shape: a thread per value, edges by output row, long rows in pieces",
                  needs_metal, pool_with_metal});
  rows.push_back({"segments", gpu, "metal.rows",
                  "any sizes of groups: a thread per value, long groups in pieces", needs_metal,
                  segments_with_metal});
  rows.push_back({"gather", gpu, "metal.rows", "any shape: a thread per value", needs_metal,
                  gather_with_metal});
  rows.push_back({"argmax", gpu, "metal.rows",
                  "any relation or groups: a thread per value, long rows in pieces", needs_metal,
                  argmax_with_metal});
  rows.push_back({"argmax", gpu, "cpu.unified", "always: the CPU's code in shared memory", always,
                  argmax_node});
  rows.push_back({"pool", gpu, "gpu.mlx", "any shape: gather and scatter of MLX, in float32",
                  always, pool_with_mlx});
  rows.push_back({"segments", gpu, "gpu.mlx", "any shape: scatter of MLX, in float32", always,
                  segments_with_mlx});
  rows.push_back({"gather", gpu, "gpu.mlx", "any shape: take of MLX", always, gather_with_mlx});
}

}  // namespace lattice
