// pool, segments, gather and argmax on the CPU.
#include <bit>

#include "lattice/kernels/cpu/features/pool.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/pool.h"

namespace lattice::routes {
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

int as_int(int64_t n) { return static_cast<int>(n); }

// A node whose result has the channels and dtype of x.
template <typename Kernel>
mx::array node(const Route& route, mx::StreamOrDevice s, const graph::Arrays& inputs, int64_t n_out,
               std::string key, Kernel kernel) {
  return cpu_node(route, s, contiguous(inputs, s), std::move(key),
                  {{as_int(n_out), inputs[0].shape(1)}, inputs[0].dtype()},
                  [kernel](std::span<const graph::Input> in, const graph::Output& out) {
                    kernel(in, out.data);
                  });
}

template <bool kReference>
mx::array pool_node(const PoolAsked& asked, const Route& route) {
  std::string key = address(asked.relation.get()) + "/" + name(asked.mode);
  for (const float w : asked.offset_weights)
    key += "," + std::to_string(std::bit_cast<uint32_t>(w));
  graph::Arrays inputs = {asked.x};
  if (asked.match) inputs = {asked.x, asked.match->top, asked.match->value};
  return node(
      route, asked.stream, inputs, asked.relation->n_out(), std::move(key),
      [r = asked.relation, mode = asked.mode, weights = asked.offset_weights](
          std::span<const graph::Input> in, void* y) {
        const float* w = weights.empty() ? nullptr : weights.data();
        const cpu::RelationLists& lists = r->lists();
        if (mode == ReduceMode::max_match) {
          kReference
              ? cpu::reference_pool_match(lists, in[1].data, in[2].data, row_array(in[0]), y)
              : cpu::pool_match(lists, r->tiles(), in[1].data, in[2].data, row_array(in[0]), y);
        } else if (mode == ReduceMode::tie_share) {
          kReference
              ? cpu::reference_pool_share(lists, in[1].data, row_array(in[2]), in[0].data, y)
              : cpu::pool_share(lists, r->tiles(), in[1].data, row_array(in[2]), in[0].data, y);
        } else {
          kReference ? cpu::reference_pool(lists, row_array(in[0]), pool_mode(mode), w, y)
                     : cpu::pool(lists, r->tiles(), row_array(in[0]), pool_mode(mode), w, y);
        }
      });
}

template <bool kReference>
mx::array segments_node(const SegmentsAsked& asked, const Route& route) {
  return node(
      route, asked.stream, {asked.x}, asked.groups->n_groups(),
      address(asked.groups.get()) + "/" + name(asked.mode),
      [groups = asked.groups, mode = asked.mode](std::span<const graph::Input> in, void* y) {
        if (kReference)
          cpu::reference_pool(groups->lists(), row_array(in[0]), pool_mode(mode), nullptr, y);
        else
          cpu::reduce_segments(groups->segments(), row_array(in[0]), reduction_of(mode), y);
      });
}

}  // namespace

mx::array pool_tiles(const PoolAsked& asked, const Route& route) {
  return pool_node<false>(asked, route);
}
mx::array pool_reference(const PoolAsked& asked, const Route& route) {
  return pool_node<true>(asked, route);
}
mx::array segments_segments(const SegmentsAsked& asked, const Route& route) {
  return segments_node<false>(asked, route);
}
mx::array segments_reference(const SegmentsAsked& asked, const Route& route) {
  return segments_node<true>(asked, route);
}

mx::array argmax_segments(const ArgmaxAsked& asked, const Route& route) {
  const cpu::Reduction kind = asked.minimum ? cpu::Reduction::min : cpu::Reduction::max;
  return cpu_node(
      route, asked.stream, contiguous({asked.x}, asked.stream),
      address(asked.relation.get()) + "/" + address(asked.groups.get()) +
          (asked.minimum ? "/min" : "/max"),
      {{as_int(asked.n_out()), asked.x.shape(1)}, mx::int32},
      [kind, r = asked.relation, groups = asked.groups](std::span<const graph::Input> in,
                                                        const graph::Output& out) {
        if (groups)
          cpu::argmax_segments(groups->segments(), row_array(in[0]), out.as<int32_t>(), kind);
        else
          cpu::pool_argmax(r->lists(), r->tiles(), row_array(in[0]), out.as<int32_t>(), kind);
      });
}

mx::array gather_by_rows(const GatherAsked& asked, const Route& route) {
  return node(
      route, asked.stream, {asked.x}, asked.groups->n_rows(),
      address(asked.groups.get()) + "/" + std::to_string(std::bit_cast<uint32_t>(asked.fill)),
      [groups = asked.groups, fill = asked.fill](std::span<const graph::Input> in, void* y) {
        cpu::gather_rows(row_array(in[0]), groups->group_of(), groups->n_rows(), fill, y);
      });
}

}  // namespace lattice::routes
