// Operations on features: each on an array (`*_features`) and on a tensor, whose identity stays.
// Arguments only.
#include "lattice/ops/features.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Stream = mx::StreamOrDevice;
using Vector = const std::optional<mx::array>&;

// f(array, arguments..., stream) under `name`_features, and the same on a tensor under `name`.
template <typename... Args, typename F, typename... Extra>
void def_both(nb::module_& m, const std::string& name, F f, const Extra&... extra) {
  def(
      m, (name + "_features").c_str(),
      [f](const mx::array& x, Args... args, Stream s) { return f(x, args..., s); }, "x"_a, extra...,
      "stream"_a);
  def(
      m, name.c_str(),
      [f](const SparseTensor& x, Args... args, Stream s) {
        return x.with_feats(f(x.feats(), args..., s));
      },
      "x"_a, extra..., "stream"_a);
}

void bind_activations(nb::module_& m) {
  def(
      m, "activation",
      [](const mx::array& x, const std::string& kind, bool approximate, float slope, float beta,
         float threshold, Stream s) {
        return activation(x, parse_activation(kind, "activation"),
                          {approximate, slope, beta, threshold}, s);
      },
      "x"_a, "kind"_a, "approximate"_a, "negative_slope"_a, "beta"_a, "threshold"_a, "stream"_a);
  const auto plain = [&](const char* name, Activation kind) {
    def_both<>(m, name,
               [kind](const mx::array& x, Stream s) { return activation(x, kind, {}, s); });
  };
  plain("relu", Activation::relu);
  plain("sigmoid", Activation::sigmoid);
  plain("silu", Activation::silu);
  plain("tanh", Activation::tanh);
  def_both<bool>(
      m, "gelu",
      [](const mx::array& x, bool approximate, Stream s) {
        return activation(x, Activation::gelu, {.approximate = approximate}, s);
      },
      "approximate"_a);
  def_both<float>(
      m, "leaky_relu",
      [](const mx::array& x, float slope, Stream s) {
        return activation(x, Activation::leaky_relu, {.negative_slope = slope}, s);
      },
      "negative_slope"_a);
  def_both<float, float>(
      m, "softplus",
      [](const mx::array& x, float beta, float threshold, Stream s) {
        return activation(x, Activation::softplus, {.beta = beta, .threshold = threshold}, s);
      },
      "beta"_a, "threshold"_a);
}

}  // namespace

void bind_features(nb::module_& m) {
  bind_activations(m);
  def_both<float, bool, Vector>(
      m, "dropout",
      [](const mx::array& x, float p, bool training, Vector key, Stream s) {
        return dropout_features(x, p, training, key, s);
      },
      "p"_a, "training"_a, "key"_a);
  def(m, "feature_statistics", &feature_statistics, "feats"_a, "stream"_a);
  def_both<Vector, Vector, Vector, Vector, float>(
      m, "batch_norm",
      [](const mx::array& x, Vector weight, Vector bias, Vector mean, Vector var, float eps,
         Stream s) { return batch_norm_features(x, {weight, bias}, mean, var, eps, s); },
      "scale"_a, "bias"_a, "mean"_a, "var"_a, "eps"_a);
  def(
      m, "batch_norm_act",
      [](const mx::array& x, Vector weight, Vector bias, Vector mean, Vector var, float eps,
         Vector residual, bool relu, Stream s) {
        const Normalized n = batch_norm_act(x, {weight, bias}, mean, var, {eps, residual, relu}, s);
        return std::make_tuple(n.y, n.mean, n.var);
      },
      "feats"_a, "weight"_a, "bias"_a, "mean"_a, "var"_a, "eps"_a, "residual"_a, "relu"_a,
      "stream"_a);
  def_both<Vector, Vector, float>(
      m, "layer_norm",
      [](const mx::array& x, Vector weight, Vector bias, float eps, Stream s) {
        return layer_norm_features(x, {weight, bias}, eps, s);
      },
      "scale"_a, "bias"_a, "eps"_a);
  def_both<Vector, float>(
      m, "rms_norm",
      [](const mx::array& x, Vector weight, float eps, Stream s) {
        return rms_norm_features(x, weight, eps, s);
      },
      "scale"_a, "eps"_a);
}
