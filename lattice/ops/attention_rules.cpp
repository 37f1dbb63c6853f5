#include "lattice/ops/attention_rules.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

namespace lattice {
namespace {

using graph::Arrays;

// A function of (inputs, g) whose own derivatives are those of the formula's gradient. The results
// of the forward pass are passed along.
Arrays gradients(const Arrays& in, const mx::array& g, const Arrays& made,
                 const AttentionRules& rules, mx::StreamOrDevice s) {
  const size_t n = in.size();
  Arrays all = in;
  all.insert(all.end(), {made[0], made[1], g});
  const auto twice = [rules](const Arrays& x) {
    return mx::vjp([&](const Arrays& y) { return Arrays{rules.formula(y)[0]}; },
                   Arrays(x.begin(), x.end() - 1), {x.back()})
        .second;
  };
  const auto without_made = [n](const Arrays& x) {
    Arrays kept(x.begin(), x.begin() + static_cast<int64_t>(n));
    kept.push_back(x.back());
    return kept;
  };
  const auto vjp = [=](const Arrays& x, const Arrays& ct, const Arrays&) {
    Arrays grads = mx::vjp(twice, without_made(x), ct).second;
    grads.insert(grads.end() - 1, {mx::zeros_like(x[n], s), mx::zeros_like(x[n + 1], s)});
    return grads;
  };
  const auto jvp = [=](const Arrays& x, const Arrays& t) {
    return mx::jvp(twice, without_made(x), without_made(t)).second;
  };
  return graph::differentiable(all, rules.backward, vjp, jvp);
}

}  // namespace

mx::array attend(const Arrays& inputs, const AttentionRules& rules, mx::StreamOrDevice s) {
  const auto vjp = [=](const Arrays& in, const Arrays& ct, const Arrays& made) {
    return gradients(in, ct[0], made, rules, s);
  };
  const auto jvp = [=](const Arrays& in, const Arrays& t) {
    return mx::jvp(rules.formula, in, t).second;
  };
  return graph::differentiable(inputs, rules.forward, vjp, jvp)[0];
}

}  // namespace lattice
