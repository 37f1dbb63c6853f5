#include "lattice/graph/differentiable.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <utility>

namespace lattice::graph {
namespace mx = mlx::core;

Arrays differentiable(const Arrays& inputs, Forward forward, Vjp vjp, Jvp jvp) {
  auto closed = [forward = std::move(forward)](const Arrays& x) {
    Arrays stopped;
    stopped.reserve(x.size());
    for (const mx::array& a : x) stopped.push_back(mx::stop_gradient(a));
    return forward(stopped);
  };
  auto all_tangents = [jvp = std::move(jvp)](const Arrays& x, const Arrays& tangents,
                                             const std::vector<int>& argnums) {
    Arrays full;
    full.reserve(x.size());
    for (const mx::array& a : x) full.push_back(mx::zeros_like(a));
    for (size_t i = 0; i < argnums.size(); ++i) full[argnums[i]] = tangents[i];
    return jvp(x, full);
  };
  return mx::custom_function(std::move(closed), std::move(vjp), std::move(all_tangents))(inputs);
}

}  // namespace lattice::graph
