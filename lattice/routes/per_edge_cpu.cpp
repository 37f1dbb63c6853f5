// per_edge_apply and per_edge_outer on the CPU.
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/per_edge.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/per_edge.h"

namespace lattice::routes {
namespace {

template <typename Kernel>
mx::array node(const ConvProblem& z, mx::StreamOrDevice s, const Route& route,
               const graph::Arrays& inputs, graph::OutputSpec output, Kernel kernel) {
  return cpu_node(route, s, inputs, address(z.relation.get()) + "/" + std::to_string(z.groups),
                  std::move(output),
                  [kernel, z](std::span<const graph::Input> in, const graph::Output& out) {
                    kernel(*z.relation, z, in, out.data);
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

// Views whose rows or columns are contiguous are read as they are; a lazy array has no strides yet,
// so the node decides.
template <typename F>
void with_matrices(const graph::Input& in, const cpu::ConvShape& shape, const F& f) {
  const cpu::Matrices given = matrices_of(in);
  if (given.stride_m == 1 || given.stride_c == 1) return f(given);
  cpu::visit_float_type(shape.storage, [&]<typename T>(T) {
    const int64_t c_in = shape.in_group(), c_out = shape.out_group(), n = in.shape[0];
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

mx::array per_edge_apply_pairs(const PerEdgeAsked& asked, const Route& route) {
  const auto s = asked.stream;
  return node(asked, s, route, {graph::row_contiguous(asked.x, s), asked.matrices_of_edges},
              asked.rows(),
              [](const Relation& r, const cpu::ConvShape& shape, std::span<const graph::Input> in,
                 void* y) {
                with_matrices(in[1], shape, [&](const cpu::Matrices& a) {
                  cpu::apply_matrices(edges_of(r, r.output_csr()), shape, in[0].data, a, y);
                });
              });
}

mx::array per_edge_outer_pairs(const OuterAsked& asked, const Route& route) {
  const auto s = asked.stream;
  return node(asked, s, route, contiguous({asked.x, asked.g}, s), asked.matrices(),
              [](const Relation& r, const cpu::ConvShape& shape, std::span<const graph::Input> in,
                 void* u) {
                cpu::outer_matrices(edges_of(r, r.kernel_csr()), shape, in[0].data, in[1].data, u);
              });
}

namespace {

// One multiplication at a time, sums in float64.
template <bool kOuter>
mx::array reference(const ConvProblem& z, mx::StreamOrDevice stream, const graph::Arrays& inputs,
                    const Route& route) {
  return node(
      z, stream, route, contiguous(inputs, stream), kOuter ? z.matrices() : z.rows(),
      [](const Relation& r, const cpu::ConvShape& s, std::span<const graph::Input> in, void* y) {
        cpu::visit_float_type(s.storage, [&]<typename T>(T) {
          const int64_t G = s.groups, C = s.in_group(), M = s.out_group();
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

mx::array per_edge_apply_reference(const PerEdgeAsked& asked, const Route& route) {
  return reference<false>(asked, asked.stream, {asked.x, asked.matrices_of_edges}, route);
}
mx::array per_edge_outer_reference(const OuterAsked& asked, const Route& route) {
  return reference<true>(asked, asked.stream, {asked.x, asked.g}, route);
}

}  // namespace lattice::routes
