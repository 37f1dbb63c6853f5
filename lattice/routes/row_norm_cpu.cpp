// row_norm on the CPU: a row stays in the cache while it is normalized.
#include "lattice/kernels/cpu/features/row_norm.h"

#include <mlx/ops.h>

#include <bit>

#include "lattice/kernels/cpu/features/reduce.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/row_norm.h"

namespace lattice {
namespace {

std::string key_of(const RowScale& n) {
  return std::to_string(std::bit_cast<uint32_t>(n.eps)) + (n.centered ? "/centered" : "");
}

// x as it is, the vectors in float32, further inputs as they are.
graph::Arrays prepared(const Call& call) {
  graph::Arrays inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const bool vector = i == 1 || i == 2;
    const mx::array& a = call.inputs[i];
    inputs.push_back(
        graph::row_contiguous(vector ? mx::astype(a, mx::float32, call.stream) : a, call.stream));
  }
  return inputs;
}

cpu::Rows rows_of(const graph::Input& x) {
  return {float_type_of(x.dtype), x.shape[0], x.shape[1]};
}

cpu::RowNorm norm_of(std::span<const graph::Input> in, const RowScale& n) {
  return {in[0].data, in[1].as<float>(), in[2].as<float>(), n.eps, n.centered};
}

}  // namespace

mx::array row_norm_fused(const Call& call, const Route& route) {
  const RowScale n = call.get<RowScale>();
  return cpu_node(call, route, prepared(call), key_of(n), {call.inputs[0].shape(), call.dtype},
                  [n](std::span<const graph::Input> in, const graph::Output& out) {
                    cpu::row_norm(rows_of(in[0]), norm_of(in, n), out.data);
                  });
}

graph::Arrays row_norm_vjp_fused(const Call& call, const Route& route) {
  const RowScale n = call.get<RowScale>();
  const mx::Shape shape = call.inputs[0].shape(), channels = {shape[1]};
  const graph::Arrays back = cpu_nodes(
      call, route, prepared(call), key_of(n),
      {{shape, call.dtype}, {channels, mx::float32}, {channels, mx::float32}},
      [n](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const cpu::Rows rows = rows_of(in[0]);
        cpu::Buffer<float> products(rows.rows * rows.channels);
        cpu::row_norm_back(rows, norm_of(in, n), in[3].data, out[0].data, products.data());
        cpu::sum_rows(cpu::FloatType::f32, products.data(), rows.rows, rows.channels, out[1].data);
        cpu::Buffer<float> cotangents(
            rows.storage == cpu::FloatType::f32 ? 0 : rows.rows * rows.channels);
        const void* g = in[3].data;
        if (!cotangents.empty()) {  // sums of 16-bit cotangents are float32 too
          cpu::visit_float_type(rows.storage, [&]<typename T>(T) {
            for (int64_t i = 0; i < cotangents.size(); ++i)
              cotangents[i] = cpu::widen(in[3].as<T>()[i]);
          });
          g = cotangents.data();
        }
        cpu::sum_rows(cpu::FloatType::f32, g, rows.rows, rows.channels, out[2].data);
      });
  return {back[0], mx::astype(back[1], call.inputs[1].dtype(), call.stream),
          mx::astype(back[2], call.inputs[2].dtype(), call.stream)};
}

}  // namespace lattice
