#include "lattice/graph/dtype.h"

#include <mlx/utils.h>

#include <sstream>
#include <stdexcept>

namespace lattice::graph {

std::string dtype_name(mlx::core::Dtype dtype) {
  std::ostringstream text;
  text << dtype;
  return text.str();
}

void throw_dtype(std::string_view operation, mlx::core::Dtype dtype, std::string_view expected) {
  throw std::invalid_argument("[" + std::string(operation) + "] dtype: found " + dtype_name(dtype) +
                              ", expected " + std::string(expected) +
                              (expected.starts_with("float32")
                                   ? "; convert it with astype, kernels take float32 and float16 "
                                     "(also bfloat16)"
                                   : ""));
}

}  // namespace lattice::graph
