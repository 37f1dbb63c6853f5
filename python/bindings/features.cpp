// Operations on features: each on an array (`*_features`) and on a tensor, whose identity stays.
// Arguments only.
#include "lattice/ops/features.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Stream = mx::StreamOrDevice;
using Vector = const std::optional<mx::array>&;

// f(array, arguments..., stream) under `name`_features, and the same on a tensor under `name`.
template <typename... Args, typename F, typename... Extra>
void def_both(nb::module_& m, const std::string& name, F f, const char* doc,
              const Extra&... extra) {
  m.def((name + "_features").c_str(),
        [f](const mx::array& feats, Args... args, Stream s) { return f(feats, args..., s); },
        "feats"_a, extra..., "stream"_a = nb::none(), doc);
  m.def(
      name.c_str(),
      [f](const SparseTensor& x, Args... args, Stream s) {
        return x.with_feats(f(x.feats(), args..., s));
      },
      "x"_a, extra..., "stream"_a = nb::none(), doc);
}

}  // namespace

void bind_features(nb::module_& m) {
  m.def(
      "activation",
      [](const mx::array& x, const std::string& kind, bool approximate, float slope, float beta,
         float threshold, Stream s) {
        return activation(x, parse_activation(kind, "activation"),
                          {approximate, slope, beta, threshold}, s);
      },
      "array"_a, nb::kw_only(), "kind"_a, "approximate"_a = false, "negative_slope"_a = 0.01f,
      "beta"_a = 1.0f, "threshold"_a = 20.0f, "stream"_a = nb::none(),
      "relu, sigmoid, silu, tanh, gelu, leaky_relu or softplus of an array.");
  const auto plain = [&](const char* name, Activation kind, const char* doc) {
    def_both<>(
        m, name, [kind](const mx::array& x, Stream s) { return activation(x, kind, {}, s); }, doc,
        nb::kw_only());
  };
  plain("relu", Activation::relu, "max(x, 0)");
  plain("sigmoid", Activation::sigmoid, "1 / (1 + exp(-x))");
  plain("silu", Activation::silu, "x sigmoid(x)");
  plain("tanh", Activation::tanh, "tanh(x), the hyperbolic tangent of each value.");
  def_both<bool>(
      m, "gelu",
      [](const mx::array& x, bool approximate, Stream s) {
        return activation(x, Activation::gelu, {.approximate = approximate}, s);
      },
      "x Phi(x); approximate: the tanh form.", nb::kw_only(), "approximate"_a = false);
  def_both<float>(
      m, "leaky_relu",
      [](const mx::array& x, float slope, Stream s) {
        return activation(x, Activation::leaky_relu, {.negative_slope = slope}, s);
      },
      "x where x > 0, else negative_slope * x", nb::kw_only(), "negative_slope"_a = 0.01f);
  def_both<float, float>(
      m, "softplus",
      [](const mx::array& x, float beta, float threshold, Stream s) {
        return activation(x, Activation::softplus, {.beta = beta, .threshold = threshold}, s);
      },
      "log(1 + exp(beta x)) / beta; x where beta x > threshold", nb::kw_only(), "beta"_a = 1.0f,
      "threshold"_a = 20.0f);
  def_both<float, bool, Vector>(
      m, "dropout",
      [](const mx::array& x, float p, bool training, Vector key, Stream s) {
        return dropout_features(x, p, training, key, s);
      },
      "Each value is 0 with probability p, otherwise divided by 1 - p; x itself when not training.",
      "p"_a = 0.5f, nb::kw_only(), "training"_a = true, "key"_a = nb::none());
  m.def("feature_statistics", &feature_statistics, "feats"_a, nb::kw_only(),
        "stream"_a = nb::none(), "(mean, variance over N) of the rows, (C,) float32.");
  def_both<Vector, Vector, Vector, Vector, float>(
      m, "batch_norm",
      [](const mx::array& x, Vector weight, Vector bias, Vector mean, Vector var, float eps,
         Stream s) { return batch_norm_features(x, {weight, bias}, mean, var, eps, s); },
      "(x - mean) / sqrt(var + eps) * weight + bias; without mean and var, those of the rows.",
      "weight"_a = nb::none(), "bias"_a = nb::none(), "mean"_a = nb::none(), "var"_a = nb::none(),
      nb::kw_only(), "eps"_a = 1e-5f);
  m.def(
      "batch_norm_act",
      [](const mx::array& x, Vector weight, Vector bias, Vector mean, Vector var, float eps,
         Vector residual, bool relu, bool only_reader, Stream s) {
        const Normalized n =
            batch_norm_act(x, {weight, bias}, mean, var, {eps, residual, relu, only_reader}, s);
        return nb::make_tuple(n.y, n.mean, n.var);
      },
      "feats"_a, "weight"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(),
      "mean"_a = nb::none(), "var"_a = nb::none(), "eps"_a = 1e-5f, "residual"_a = nb::none(),
      "relu"_a = false, "only_reader"_a = false, "stream"_a = nb::none(),
      "(relu(batch_norm(feats) + residual), mean, var) in one pass; the statistics carry no "
      "gradient.");
  def_both<Vector, Vector, float>(
      m, "layer_norm",
      [](const mx::array& x, Vector weight, Vector bias, float eps, Stream s) {
        return layer_norm_features(x, {weight, bias}, eps, s);
      },
      "Each row minus its mean, divided by its standard deviation; then weight and bias.",
      "weight"_a = nb::none(), "bias"_a = nb::none(), nb::kw_only(), "eps"_a = 1e-5f);
  def_both<Vector, float>(
      m, "rms_norm",
      [](const mx::array& x, Vector weight, float eps, Stream s) {
        return rms_norm_features(x, weight, eps, s);
      },
      "Each row divided by the root of its mean square; then weight.", "weight"_a = nb::none(),
      nb::kw_only(), "eps"_a = 1e-5f);
}
