#include "lattice/ops/triplets_routes.h"

#include <mlx/ops.h>

#include "lattice/graph/cpu_call.h"
#include "lattice/kernels/cpu/features/per_edge.h"
#include "lattice/ops/conv_metal.h"

namespace lattice {
namespace {

Rejection always(const Call&) { return {}; }

template <typename Kernel>
mx::array node(const Call& call, const char* route, std::vector<mx::array> inputs, mx::Shape shape,
               Kernel kernel) {
  const std::string key = std::to_string(reinterpret_cast<std::uintptr_t>(call.relation.get())) +
                          "/" + std::to_string(call.groups);
  const cpu::PerEdgeShape sizes{float_type_of(call.dtype), call.groups, call.c_in / call.groups,
                                call.c_out / call.groups};
  return graph::cpu_call(
      call.operation + "." + route, key, std::move(inputs), {{std::move(shape), call.dtype}},
      [kernel, sizes, r = call.relation, operation = call.operation, name = std::string(route)](
          std::span<const graph::Input> in, std::span<const graph::Output> out) {
        count_run(operation, name);
        kernel(*r, sizes, in, out[0].data);
      },
      call.stream)[0];
}

cpu::PerEdgeEdges edges_of(const Relation& r, const Csr& groups) {
  const Edges& e = r.edges();
  return {static_cast<int64_t>(groups.row_offsets.size()) - 1,
          groups.row_offsets.data<int32_t>(),
          groups.edge_ids.data<int32_t>(),
          e.in_rows.data<int32_t>(),
          e.out_rows.data<int32_t>(),
          e.kernel_ids.data<int32_t>()};
}

cpu::Matrices matrices_of(const graph::Input& in) {
  return {in.data, in.strides[0], in.strides[1], in.strides[2], in.strides[3]};
}

mx::Shape rows_shape(const Call& call) {
  return {static_cast<int>(call.n_out()), static_cast<int>(call.c_out)};
}
mx::Shape matrices_shape(const Call& call) {
  return {static_cast<int>(call.relation->n_kernels()), static_cast<int>(call.groups),
          static_cast<int>(call.c_in / call.groups), static_cast<int>(call.c_out / call.groups)};
}

// Views whose rows or columns are contiguous are read as they are; a lazy array has no strides yet,
// so the node decides.
template <typename F>
void with_matrices(const graph::Input& in, const cpu::PerEdgeShape& shape, const F& f) {
  const cpu::Matrices given = matrices_of(in);
  if (given.stride_m == 1 || given.stride_c == 1) return f(given);
  cpu::visit_float_type(shape.storage, [&]<typename T>(T) {
    const int64_t c_in = shape.c_in, c_out = shape.c_out, n = in.shape[0];
    cpu::Buffer<T> copy(n * shape.groups * c_in * c_out);
    T* to = copy.data();
    for (int64_t k = 0; k < n; ++k)
      for (int64_t g = 0; g < shape.groups; ++g)
        for (int64_t c = 0; c < c_in; ++c)
          for (int64_t m = 0; m < c_out; ++m)
            *to++ = static_cast<const T*>(given.data)[k * given.stride_k + g * given.stride_g +
                                                      c * given.stride_c + m * given.stride_m];
    f({copy.data(), shape.groups * c_in * c_out, c_in * c_out, c_out, 1});
  });
}

mx::array apply_pairs(const Call& call) {
  return node(call, "cpu.pairs",
              {graph::row_contiguous(call.inputs[0], call.stream), call.inputs[1]},
              rows_shape(call),
              [](const Relation& r, const cpu::PerEdgeShape& shape,
                 std::span<const graph::Input> in, void* y) {
                with_matrices(in[1], shape, [&](const cpu::Matrices& a) {
                  cpu::apply_matrices(edges_of(r, r.output_csr()), shape, in[0].data, a, y);
                });
              });
}

mx::array outer_pairs(const Call& call) {
  return node(call, "cpu.pairs",
              {graph::row_contiguous(call.inputs[0], call.stream),
               graph::row_contiguous(call.inputs[1], call.stream)},
              matrices_shape(call),
              [](const Relation& r, const cpu::PerEdgeShape& shape,
                 std::span<const graph::Input> in, void* u) {
                cpu::outer_matrices(edges_of(r, r.kernel_csr()), shape, in[0].data, in[1].data, u);
              });
}

// One multiplication at a time, sums in float64.
template <bool kOuter>
mx::array reference(const Call& call) {
  std::vector<mx::array> inputs;
  for (const mx::array& a : call.inputs) inputs.push_back(graph::row_contiguous(a, call.stream));
  return node(
      call, "cpu.reference", std::move(inputs), kOuter ? matrices_shape(call) : rows_shape(call),
      [](const Relation& r, const cpu::PerEdgeShape& s, std::span<const graph::Input> in, void* y) {
        cpu::visit_float_type(s.storage, [&]<typename T>(T) {
          const int64_t G = s.groups, C = s.c_in, M = s.c_out;
          const auto at = [](const graph::Input& a, int64_t i) {
            return double{cpu::widen(static_cast<const T*>(a.data)[i])};
          };
          std::vector<double> sums(
              static_cast<size_t>((kOuter ? r.n_kernels() * C : r.n_out()) * G * M));
          const Edges& edges = r.edges();
          for (int64_t e = 0; e < r.edge_count(); ++e) {
            const int64_t i = edges.in_rows.data<int32_t>()[e],
                          o = edges.out_rows.data<int32_t>()[e],
                          k = edges.kernel_ids.data<int32_t>()[e];
            for (int64_t g = 0; g < G; ++g)
              for (int64_t c = 0; c < C; ++c)
                for (int64_t m = 0; m < M; ++m) {
                  const int64_t matrix = ((k * G + g) * C + c) * M + m, row = (o * G + g) * M + m;
                  sums[static_cast<size_t>(kOuter ? matrix : row)] +=
                      at(in[0], (i * G + g) * C + c) * at(in[1], kOuter ? row : matrix);
                }
          }
          for (size_t i = 0; i < sums.size(); ++i)
            static_cast<T*>(y)[i] = cpu::narrow<T>(static_cast<float>(sums[i]));
        });
      });
}

// (E, G, C) rows of the edges, in float32.
mx::array taken(const Call& call, size_t i, const mx::array& rows, int64_t channels) {
  const mx::array x =
      mx::take(mx::astype(call.inputs[i], mx::float32, call.stream), rows, 0, call.stream);
  return mx::reshape(x,
                     {static_cast<int>(call.n_edges()), static_cast<int>(call.groups),
                      static_cast<int>(channels / call.groups)},
                     call.stream);
}

mx::array apply_with_mlx(const Call& call) {
  const auto s = call.stream;
  const Edges& edges = call.relation->edges();
  const mx::array zeros = mx::zeros(rows_shape(call), mx::float32, s);
  if (call.n_edges() == 0) return mx::astype(zeros, call.dtype, s);
  const mx::array x = mx::expand_dims(taken(call, 0, edges.in_rows, call.c_in), 2, s);
  const mx::array a = mx::take(mx::astype(call.inputs[1], mx::float32, s), edges.kernel_ids, 0, s);
  const mx::array y =
      mx::reshape(mx::matmul(x, a, s), {static_cast<int>(call.n_edges()), 1, zeros.shape(1)}, s);
  return mx::astype(mx::scatter_add(zeros, {edges.out_rows}, y, {0}, s), call.dtype, s);
}

mx::array outer_with_mlx(const Call& call) {
  const auto s = call.stream;
  const Edges& edges = call.relation->edges();
  const mx::array zeros = mx::zeros(matrices_shape(call), mx::float32, s);
  if (call.n_edges() == 0) return mx::astype(zeros, call.dtype, s);
  const mx::array u =
      mx::multiply(mx::expand_dims(taken(call, 0, edges.in_rows, call.c_in), 3, s),
                   mx::expand_dims(taken(call, 1, edges.out_rows, call.c_out), 2, s), s);
  return mx::astype(mx::scatter_add(zeros, {edges.kernel_ids}, mx::expand_dims(u, 1, s), {0}, s),
                    call.dtype, s);
}

}  // namespace

void add_triplets_routes(std::vector<Route>& rows) {
  const auto cpu = mx::Device::cpu, gpu = mx::Device::gpu;
  const std::string slow = "any shape: one multiplication at a time, sums in float64";
  const std::string plain = "any shape: gather, products and scatter-add of MLX, in float32";
  rows.push_back({"per_edge_apply", cpu, "cpu.pairs",
                  "any shape: matrices read in a stream, edges by output row", always,
                  apply_pairs});
  rows.push_back({"per_edge_apply", cpu, "cpu.reference", slow, always, reference<false>});
  rows.push_back({"per_edge_outer", cpu, "cpu.pairs",
                  "any shape: matrices written in a stream, edges by matrix", always, outer_pairs});
  rows.push_back({"per_edge_outer", cpu, "cpu.reference", slow, always, reference<true>});
  rows.push_back({"per_edge_apply", gpu, "metal.rows",
                  "any shape where there is Metal: a thread an element, edges by output row",
                  needs_metal, per_edge_apply_metal});
  rows.push_back({"per_edge_outer", gpu, "metal.rows",
                  "any shape where there is Metal: a thread an element of a matrix, edges of a "
                  "matrix in parts of 1,024",
                  needs_metal, per_edge_outer_metal});
  rows.push_back({"per_edge_apply", gpu, "gpu.mlx", plain, always, apply_with_mlx});
  rows.push_back({"per_edge_outer", gpu, "gpu.mlx", plain, always, outer_with_mlx});
}

}  // namespace lattice
