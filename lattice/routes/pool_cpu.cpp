// pool, segments, gather and argmax on the CPU.
#include <bit>

#include "lattice/kernels/cpu/features/pool.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/pool.h"

namespace lattice {
namespace {

cpu::PoolMode pool_mode(ReduceMode mode) {
  switch (mode) {
    case ReduceMode::mean:
      return cpu::PoolMode::mean;
    case ReduceMode::mean_adjoint:
      return cpu::PoolMode::mean_adjoint;
    case ReduceMode::max:
      return cpu::PoolMode::max;
    case ReduceMode::min:
      return cpu::PoolMode::min;
    default:
      return cpu::PoolMode::sum;
  }
}

cpu::Reduction reduction_of(ReduceMode mode) {
  switch (mode) {
    case ReduceMode::mean:
      return cpu::Reduction::mean;
    case ReduceMode::max:
      return cpu::Reduction::max;
    case ReduceMode::min:
      return cpu::Reduction::min;
    default:
      return cpu::Reduction::sum;
  }
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
  std::string key = address(call.relation.get()) + "/" + name(call.reduce().mode);
  for (const float w : call.reduce().offset_weights)
    key += "," + std::to_string(std::bit_cast<uint32_t>(w));
  return node(
      call, route, std::move(key),
      [r = call.relation, mode = call.reduce().mode, weights = call.reduce().offset_weights](
          std::span<const graph::Input> in, void* y) {
        const float* w = weights.empty() ? nullptr : weights.data();
        const cpu::RelationLists& lists = r->lists();
        if (mode == ReduceMode::max_match) {
          kReference
              ? cpu::reference_pool_match(lists, in[0].data, in[1].data, row_array(in[2]), y)
              : cpu::pool_match(lists, r->tiles(), in[0].data, in[1].data, row_array(in[2]), y);
        } else if (mode == ReduceMode::tie_share) {
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
  return node(call, route, address(call.row_groups.get()) + "/" + name(call.reduce().mode),
              [groups = call.row_groups, mode = call.reduce().mode](
                  std::span<const graph::Input> in, void* y) {
                if (kReference)
                  cpu::reference_pool(groups->lists(), row_array(in[0]), pool_mode(mode), nullptr,
                                      y);
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
      address(call.relation.get()) + "/" + address(call.row_groups.get()) + "/" +
          name(call.reduce().mode),
      std::move(rows),
      [kind = reduction_of(call.reduce().mode), r = call.relation, groups = call.row_groups](
          std::span<const graph::Input> in, const graph::Output& out) {
        if (groups)
          cpu::argmax_segments(groups->segments(), row_array(in[0]), out.as<int32_t>(), kind);
        else
          cpu::pool_argmax(r->lists(), r->tiles(), row_array(in[0]), out.as<int32_t>(), kind);
      });
}

mx::array gather_by_rows(const Call& call, const Route& route) {
  return node(call, route,
              address(call.row_groups.get()) + "/" +
                  std::to_string(std::bit_cast<uint32_t>(call.reduce().fill)),
              [groups = call.row_groups, fill = call.reduce().fill](
                  std::span<const graph::Input> in, void* y) {
                cpu::gather_rows(row_array(in[0]), groups->group_of(), groups->n_rows(), fill, y);
              });
}

}  // namespace lattice
