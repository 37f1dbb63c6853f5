// Prints what the library can do on this machine.
#include <iostream>

#include "lattice/lattice.h"

int main() {
  lattice::BackendInfo info = lattice::backend_info();
  std::cout << "lattice " << info.version << " on MLX " << info.mlx_running << ", " << info.simd
            << ", " << info.threads << " threads, tensor operations: " << info.tensor_ops << "\n";
  return info.mlx_built == info.mlx_running ? 0 : 1;
}
