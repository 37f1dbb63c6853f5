// pool, segments, gather and argmax on the CPU.
#include <bit>

#include "lattice/kernels/cpu/features/pool.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/pool.h"

namespace lattice {
namespace {

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

// A node that runs kernel(inputs, output); `key` spells out what else it depends on.
template <typename Kernel>
mx::array node(const Call& call, const Route& route, std::string key, Kernel kernel) {
  return cpu_node(call, route, contiguous_inputs(call), std::move(key), output_rows(call),
                  [kernel](std::span<const graph::Input> in, const graph::Output& out) {
                    kernel(in, out.data);
                  });
}

template <bool kReference>
mx::array pool_node(const Call& call, const Route& route) {
  std::string key = address(call.relation.get()) + "/" + call.mode;
  for (const float w : call.offset_weights) key += "," + std::to_string(std::bit_cast<uint32_t>(w));
  return node(
      call, route, std::move(key),
      [r = call.relation, mode = call.mode, weights = call.offset_weights](
          std::span<const graph::Input> in, void* y) {
        const float* w = weights.empty() ? nullptr : weights.data();
        const cpu::RelationLists& lists = r->lists();
        if (mode == "match") {
          kReference
              ? cpu::reference_pool_match(lists, in[0].data, in[1].data, row_array(in[2]), y)
              : cpu::pool_match(lists, r->tiles(), in[0].data, in[1].data, row_array(in[2]), y);
        } else if (mode == "share") {
          kReference
              ? cpu::reference_pool_share(lists, in[0].data, row_array(in[1]), in[2].data, y)
              : cpu::pool_share(lists, r->tiles(), in[0].data, row_array(in[1]), in[2].data, y);
        } else {
          kReference ? cpu::reference_pool(lists, row_array(in[0]), pool_mode(mode), w, y)
                     : cpu::pool(lists, r->tiles(), row_array(in[0]), pool_mode(mode), w, y);
        }
      });
}

template <bool kReference>
mx::array segments_node(const Call& call, const Route& route) {
  return node(
      call, route, address(call.groups_of_rows.get()) + "/" + call.mode,
      [groups = call.groups_of_rows, mode = call.mode](std::span<const graph::Input> in, void* y) {
        if (kReference)
          cpu::reference_pool(groups->lists(), row_array(in[0]), pool_mode(mode), nullptr, y);
        else
          cpu::reduce_segments(groups->segments(), row_array(in[0]), reduction_of(mode), y);
      });
}

}  // namespace

mx::array pool_tiles(const Call& call, const Route& route) { return pool_node<false>(call, route); }
mx::array pool_reference(const Call& call, const Route& route) {
  return pool_node<true>(call, route);
}
mx::array segments_segments(const Call& call, const Route& route) {
  return segments_node<false>(call, route);
}
mx::array segments_reference(const Call& call, const Route& route) {
  return segments_node<true>(call, route);
}

mx::array argmax_segments(const Call& call, const Route& route) {
  graph::OutputSpec rows = output_rows(call);
  rows.dtype = mx::int32;
  return cpu_node(
      call, route, contiguous_inputs(call),
      address(call.relation.get()) + "/" + address(call.groups_of_rows.get()) + "/" + call.mode,
      std::move(rows),
      [kind = reduction_of(call.mode), r = call.relation, groups = call.groups_of_rows](
          std::span<const graph::Input> in, const graph::Output& out) {
        if (groups)
          cpu::argmax_segments(groups->segments(), row_array(in[0]), out.as<int32_t>(), kind);
        else
          cpu::pool_argmax(r->lists(), r->tiles(), row_array(in[0]), out.as<int32_t>(), kind);
      });
}

mx::array gather_by_rows(const Call& call, const Route& route) {
  return node(
      call, route,
      address(call.groups_of_rows.get()) + "/" + std::to_string(std::bit_cast<uint32_t>(call.fill)),
      [groups = call.groups_of_rows, fill = call.fill](std::span<const graph::Input> in, void* y) {
        cpu::gather_rows(row_array(in[0]), groups->group_of(), groups->n_rows(), fill, y);
      });
}

}  // namespace lattice
