// A submanifold convolution and its gradient on five voxels.
#include <mlx/mlx.h>

#include <iostream>

#include "lattice/lattice.h"

namespace mx = mlx::core;

int main() {
  mx::array coords({0, 0, 0, 0,  //
                    0, 1, 0, 0,  //
                    0, 1, 1, 0,  //
                    0, 7, 7, 7,  //
                    1, 0, 0, 0},
                   {5, 4});
  mx::array feats = mx::ones({5, 16});
  mx::array weight = mx::random::normal({8, 3, 3, 3, 16});  // (C_out, Kx, Ky, Kz, C_in)
  lattice::SparseTensor x(coords, feats);

  auto loss = [&](const mx::array& w) {
    return mx::sum(mx::square(lattice::subm_conv3d(x, w).feats()));
  };
  mx::array gradient = mx::grad(loss)(weight);
  std::cout << "loss " << loss(weight).item<float>() << ", gradient " << gradient.shape() << "\n";

  // A voxel without neighbors sees the center of the kernel only.
  mx::array y = lattice::subm_conv3d(x, weight).feats();
  mx::array center = mx::sum(mx::slice(weight, {0, 1, 1, 1, 0}, {8, 2, 2, 2, 16}), {1, 2, 3, 4});
  bool right = mx::allclose(mx::take(y, 3, 0), center, 1e-4, 1e-5).item<bool>();
  std::cout << (right ? "as expected" : "wrong") << "\n";
  return right ? 0 : 1;
}
