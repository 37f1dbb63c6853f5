// An operation of one's own on a relation: the graph Laplacian of a voxel surface, with its
// derivative.
//
//   y[o] = sum over edges (i, o, k) of x[i] - x[o]
//
// The derivative is the same operation on the reversed relation, because the matrix of the
// operation is A - D. A[o, i] is the number of edges, D the number of edges of each row, and the
// derivative is A^T - D.
//
// `cpu_call` makes an MLX node of a plain function on memory; `differentiable` gives it derivative
// rules.
#include <mlx/mlx.h>

#include <iostream>

#include "lattice/extend.h"
#include "lattice/lattice.h"

namespace mx = mlx::core;
using namespace lattice;

// out[o] = sum of x over the edges of o - degree[o] * x[o]. The relation is kept alive by the node.
mx::array neighbor_differences(const mx::array& x, const Relation::Ptr& relation) {
  const int32_t* first = relation->output_csr().row_offsets.data<int32_t>();
  const int32_t* in_rows = relation->edges().in_rows.data<int32_t>();  // ordered by output row
  const std::string key = std::to_string(reinterpret_cast<std::uintptr_t>(relation.get()));
  return cpu_call("neighbor_differences", key, {row_contiguous(x)}, {{x.shape(), mx::float32}},
                  [relation, first, in_rows](auto in, auto out) {
                    const int64_t channels = in[0].shape[1];
                    const float* x = in[0].template as<float>();
                    float* y = out[0].template as<float>();
                    parallel_range(relation->n_out(), 256, [&](int64_t begin, int64_t end) {
                      for (int64_t o = begin; o < end; ++o)
                        for (int64_t c = 0; c < channels; ++c) {
                          float sum = 0;
                          for (int32_t e = first[o]; e < first[o + 1]; ++e)
                            sum += x[in_rows[e] * channels + c] - x[o * channels + c];
                          y[o * channels + c] = sum;
                        }
                    });
                  })[0];
}

mx::array laplacian(const mx::array& x, const Relation::Ptr& relation) {
  const auto forward = [relation](const Arrays& in) {
    return Arrays{neighbor_differences(in[0], relation)};
  };
  const auto vjp = [relation](const Arrays&, const Arrays& ct, const Arrays&) {
    return Arrays{laplacian(ct[0], relation)};  // a submanifold relation is its own reverse
  };
  const auto jvp = [relation](const Arrays&, const Arrays& t) {
    return Arrays{laplacian(t[0], relation)};
  };
  return differentiable({x}, forward, vjp, jvp)[0];
}

int main() {
  mx::array coords({0, 0, 0, 0,  //
                    0, 1, 0, 0,  //
                    0, 1, 1, 0,  //
                    0, 2, 1, 0,  //
                    1, 0, 0, 0},
                   {5, 4});
  const SparseTensor x(coords, mx::random::normal({5, 3}, mx::float32, mx::random::key(1)));
  const Relation::Ptr near = relation(RelationKind::submanifold, x);

  // A constant has no differences; the derivative along a direction is the operation on that
  // direction.
  const bool flat =
      mx::all(mx::equal(laplacian(mx::ones({5, 3}), near), mx::array(0.0f))).item<bool>();
  const mx::array way = mx::random::normal({5, 3}, mx::float32, mx::random::key(2));
  const auto energy = [&](const mx::array& f) { return mx::sum(mx::square(laplacian(f, near))); };
  const float slope = mx::sum(mx::multiply(mx::grad(energy)(x.feats()), way)).item<float>();
  const auto moved = [&](float h) {
    return energy(mx::add(x.feats(), mx::multiply(mx::array(h), way)));
  };
  const float numeric = (moved(0.05f).item<float>() - moved(-0.05f).item<float>()) / 0.1f;
  std::cout << "slope " << slope << ", by differences " << numeric << "\n";
  return flat && std::abs(slope - numeric) <= 1e-3f * std::abs(slope) ? 0 : 1;
}
