// per_edge_apply and per_edge_outer on the CPU.
#include "lattice/kernels/cpu/features/per_edge.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/per_edge.h"

namespace lattice {
namespace {

template <typename Kernel>
mx::array node(const Call& call, const Route& route, graph::Arrays inputs, graph::OutputSpec output,
               Kernel kernel) {
  const cpu::PerEdgeShape sizes{float_type_of(call.dtype), call.groups, call.c_in / call.groups,
                                call.c_out / call.groups};
  return cpu_node(call, route, std::move(inputs),
                  address(call.relation.get()) + "/" + std::to_string(call.groups),
                  std::move(output),
                  [kernel, sizes, r = call.relation](std::span<const graph::Input> in,
                                                     const graph::Output& out) {
                    kernel(*r, sizes, in, out.data);
                  });
}

cpu::PerEdgeEdges edges_of(const Relation& r, const EdgeGroups& groups) {
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

graph::OutputSpec output_matrices(const Call& call) {
  return {{static_cast<int>(call.relation->n_kernels()), static_cast<int>(call.groups),
           static_cast<int>(call.c_in / call.groups), static_cast<int>(call.c_out / call.groups)},
          call.dtype};
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

}  // namespace

mx::array per_edge_apply_pairs(const Call& call, const Route& route) {
  return node(call, route, {graph::row_contiguous(call.inputs[0], call.stream), call.inputs[1]},
              output_rows(call),
              [](const Relation& r, const cpu::PerEdgeShape& shape,
                 std::span<const graph::Input> in, void* y) {
                with_matrices(in[1], shape, [&](const cpu::Matrices& a) {
                  cpu::apply_matrices(edges_of(r, r.output_csr()), shape, in[0].data, a, y);
                });
              });
}

mx::array per_edge_outer_pairs(const Call& call, const Route& route) {
  return node(call, route,
              {graph::row_contiguous(call.inputs[0], call.stream),
               graph::row_contiguous(call.inputs[1], call.stream)},
              output_matrices(call),
              [](const Relation& r, const cpu::PerEdgeShape& shape,
                 std::span<const graph::Input> in, void* u) {
                cpu::outer_matrices(edges_of(r, r.kernel_csr()), shape, in[0].data, in[1].data, u);
              });
}

namespace {

// One multiplication at a time, sums in float64.
template <bool kOuter>
mx::array reference(const Call& call, const Route& route) {
  return node(
      call, route, contiguous_inputs(call), kOuter ? output_matrices(call) : output_rows(call),
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

}  // namespace

mx::array per_edge_apply_reference(const Call& call, const Route& route) {
  return reference<false>(call, route);
}
mx::array per_edge_outer_reference(const Call& call, const Route& route) {
  return reference<true>(call, route);
}

}  // namespace lattice
