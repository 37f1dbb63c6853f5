// conv, linear and outer on the CPU.
#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/features/bf16_conv.h"
#include "lattice/kernels/cpu/features/buckets.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/outer.h"
#include "lattice/kernels/cpu/features/packed.h"
#include "lattice/kernels/cpu/features/reference.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/packed_weight.h"

namespace lattice::routes {
namespace {

// Where the inputs of a node of conv stand: x and the columns behind it, the weight, the bias, then
// what the norm reads.
struct Places {
  bool more, codes, bias, norm, residual, relu;
  Packing packing = {};
  PackedKernel::Panels panels;

  explicit Places(const ConvAsked& asked)
      : more(asked.more.has_value()),
        codes(asked.weight.codes.has_value()),
        bias(asked.bias.has_value()),
        norm(asked.norm.has_value()),
        residual(norm && asked.norm->residual),
        relu(norm && asked.norm->relu),
        panels(asked.weight.panels) {
    if (codes) packing = asked.weight.codes->packing;
  }
  size_t weight_at() const { return more ? 2 : 1; }
  size_t bias_at() const { return weight_at() + (codes ? 3 : 1); }
  size_t norm_at() const { return bias_at() + (bias ? 1 : 0); }

  // What the node depends on besides its inputs.
  std::string key(const ConvProblem& shape) const {
    std::string text = address(shape.relation.get());
    for (const int64_t part :
         {shape.groups, packing.bits, packing.group_size, int64_t{packing.transposed},
          int64_t{bias}, int64_t{more}, int64_t{norm}, int64_t{relu}})
      text += "/" + std::to_string(part);
    return text + "/" + address(panels.get());
  }
  const void* bias_data(std::span<const graph::Input> in) const {
    return bias ? in[bias_at()].data : nullptr;
  }
  cpu::NormAfter norm_after(std::span<const graph::Input> in) const {
    if (!norm) return {};
    const auto rest = in.subspan(norm_at());
    return {rest[0].as<float>(), rest[1].as<float>(), rest[2].as<float>(),
            residual ? rest[3].data : nullptr, relu};
  }
};

// A node that runs kernel(problem, places, inputs, output). Features are made contiguous; a dense
// weight keeps its strides.
template <typename Kernel>
mx::array conv_node(const ConvAsked& asked, const Route& route, Kernel kernel) {
  const Places at(asked);
  graph::Arrays inputs = {asked.x};
  if (asked.more) inputs.push_back(*asked.more);
  inputs.push_back(asked.weight.w);
  if (asked.weight.codes)
    inputs.insert(inputs.end(), {asked.weight.codes->scales, asked.weight.codes->biases});
  if (asked.bias) inputs.push_back(*asked.bias);
  if (const auto& norm = asked.norm) {
    inputs.insert(inputs.end(), {norm->mean, norm->scale(asked.stream), norm->shift});
    if (norm->residual) inputs.push_back(*norm->residual);
  }
  inputs = contiguous(inputs, asked.stream);
  if (!asked.weight.codes) inputs[at.weight_at()] = asked.weight.w;
  return cpu_node(
      route, asked.stream, inputs, at.key(asked), asked.rows(),
      [kernel, at, z = ConvProblem(asked)](std::span<const graph::Input> in,
                                           const graph::Output& out) { kernel(z, at, in, out); });
}

cpu::DenseWeight dense_weight(const ConvProblem& z, const graph::Input& w) {
  return {z, w.data, w.strides[0], w.strides[1], w.strides[2]};
}

// kShared: rows that share (offset, output row) are added first.
template <bool kShared>
mx::array conv_dense_with(const ConvAsked& asked, const Route& route) {
  return conv_node(
      asked, route,
      [](const ConvProblem& z, const Places& at, std::span<const graph::Input> in,
         const graph::Output& out) {
        const cpu::DenseWeight weight = dense_weight(z, in[at.weight_at()]);
        cpu::conv(z.relation->lists(), z.relation->tiles(),
                  {z, in[0].data, &weight, at.bias_data(in), out.data, kShared, at.norm_after(in),
                   at.more ? in[1].data : nullptr, at.more ? in[1].shape[1] : 0, at.panels.get()});
      });
}

template <bool kShared>
mx::array conv_packed_with(const ConvAsked& asked, const Route& route) {
  return conv_node(
      asked, route,
      [](const ConvProblem& z, const Places& at, std::span<const graph::Input> in,
         const graph::Output& out) {
        const Packing& packing = at.packing;
        cpu::PackedWeight weight;
        weight.shape = z;
        if (packing.transposed) weight.shape = weight.shape.reversed();
        weight.codes = in[1].as<uint32_t>();
        weight.scales = in[2].data;
        weight.biases = in[3].data;
        weight.bits = packing.bits;
        weight.group_size = packing.group_size;
        weight.n_k = z.n_k();
        weight.transposed = packing.transposed;
        cpu::conv(z.relation->lists(), z.relation->tiles(),
                  {z, in[0].data, &weight, at.bias_data(in), out.data, kShared, at.norm_after(in)});
      });
}

// The same question on one array, without what follows it.
ConvAsked plain(const ConvAsked& given) {
  ConvAsked asked = with_dense_weight(given);
  if (asked.more) asked.x = mx::concatenate({asked.x, *asked.more}, 1, asked.stream);
  asked.more = {};
  asked.norm = {};
  return asked;
}

// The same question in float32.
ConvAsked in_float32(ConvAsked asked) {
  asked.storage = float_type_of(mx::float32);
  asked.x = as_float32(asked.x, asked.stream);
  asked.weight.w = as_float32(asked.weight.w, asked.stream);
  if (asked.bias) asked.bias = as_float32(*asked.bias, asked.stream);
  return asked;
}

// A node that runs kernel(problem, inputs, output).
template <typename Kernel>
mx::array outer_node(const OuterAsked& asked, const Route& route, Kernel kernel) {
  return cpu_node(
      route, asked.stream, contiguous({asked.x, asked.g}, asked.stream),
      address(asked.relation.get()) + "/" + std::to_string(asked.groups), asked.weights(),
      [kernel, z = ConvProblem(asked)](std::span<const graph::Input> in, const graph::Output& out) {
        kernel(z, in, out);
      });
}

template <auto kKernel>
mx::array outer_with(const OuterAsked& asked, const Route& route) {
  return outer_node(
      asked, route,
      [](const ConvProblem& z, std::span<const graph::Input> in, const graph::Output& out) {
        kKernel(z.relation->lists(), z.relation->tiles(), {z, in[0].data, in[1].data, out.data});
      });
}

}  // namespace

std::string tile_note(const ConvProblem& z) {
  const int64_t tile = cpu::conv_tile(z.relation->lists());
  const auto counted = [](int64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  return "the kernel cuts " + counted(z.n_out(), "output row") + " into " +
         counted((z.n_out() + tile - 1) / tile, "tile") + " of " + std::to_string(tile);
}

mx::array conv_tiles(const ConvAsked& asked, const Route& route) {
  return conv_dense_with<false>(asked, route);
}
mx::array conv_buckets(const ConvAsked& asked, const Route& route) {
  return conv_dense_with<true>(asked, route);
}
mx::array conv_packed(const ConvAsked& asked, const Route& route) {
  return conv_packed_with<false>(asked, route);
}
mx::array conv_packed_buckets(const ConvAsked& asked, const Route& route) {
  return conv_packed_with<true>(asked, route);
}

mx::array conv_bf16(const ConvAsked& asked, const Route& route) {
  return conv_node(asked, route,
                   [](const ConvProblem& z, const Places& at, std::span<const graph::Input> in,
                      const graph::Output& out) {
                     const cpu::DenseWeight weight = dense_weight(z, in[at.weight_at()]);
                     cpu::bf16_conv(z.relation->lists(), z.relation->tiles(),
                                    {z, in[0].data, &weight, at.bias_data(in), out.data, false,
                                     at.norm_after(in), at.more ? in[1].data : nullptr,
                                     at.more ? in[1].shape[1] : 0});
                   });
}

mx::array conv_reference(const ConvAsked& asked, const Route& route) {
  const auto run = [](const ConvProblem& z, const Places& at, std::span<const graph::Input> in,
                      const graph::Output& out) {
    cpu::reference_conv(z.relation->lists(), dense_weight(z, in[1]),
                        {.shape = z, .x = in[0].data, .bias = at.bias_data(in), .y = out.data});
  };
  const ConvAsked alone = plain(asked);  // a norm takes the sums before they are rounded
  return with_norm(asked, conv_node(asked.norm ? in_float32(alone) : alone, route, run));
}

mx::array outer_buckets(const OuterAsked& asked, const Route& route) {
  return outer_with<cpu::outer_of_buckets>(asked, route);
}
mx::array outer_tiles(const OuterAsked& asked, const Route& route) {
  return outer_with<cpu::outer>(asked, route);
}

mx::array outer_reference(const OuterAsked& asked, const Route& route) {
  return outer_node(
      asked, route,
      [](const ConvProblem& z, std::span<const graph::Input> in, const graph::Output& out) {
        cpu::reference_outer(z.relation->lists(), {z, in[0].data, in[1].data, out.data});
      });
}

bool conv_is_host_code(mx::StreamOrDevice s) { return !on_gpu(s); }

}  // namespace lattice::routes
