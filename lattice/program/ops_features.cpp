// Activations and norms in programs, each on arrays (`*_features`) and on sparse tensors;
// docs/ops/features.md has the formulas.
#include "lattice/ops/features.h"

#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

using Run = std::function<mx::array(const mx::array&, const Call&)>;

constexpr Operand kWeight{"weight", "array", Form::optional},
    kBias{"bias", "array", Form::optional};
constexpr Attribute kEps{"eps", Type::number};

float real(const Call& call, const char* name) { return static_cast<float>(call.number(name)); }

// `name`_features on an array, `name` on the features of a tensor.
void add_both(std::vector<Operation>& rows, const char* on_array, const char* on_tensor,
              const std::vector<Operand>& operands, const std::vector<Attribute>& attributes,
              const Run& run) {
  std::vector<Operand> with_array{{"feats", "array"}}, with_tensor{{"x", "sparse"}};
  with_array.insert(with_array.end(), operands.begin(), operands.end());
  with_tensor.insert(with_tensor.end(), operands.begin(), operands.end());
  rows.push_back({on_array,
                  1,
                  with_array,
                  attributes,
                  {"array"},
                  Phase::features,
                  [run](const Call& call) -> Results { return {run(call.array("feats"), call)}; }});
  rows.push_back({on_tensor,
                  1,
                  with_tensor,
                  attributes,
                  {"sparse"},
                  Phase::features,
                  [run](const Call& call) -> Results {
                    const SparseTensor& x = call.sparse("x");
                    return {x.with_feats(run(x.feats(), call))};
                  }});
}

void add_activations(std::vector<Operation>& rows) {
  const auto plain = [&](const char* on_array, const char* on_tensor, Activation kind) {
    add_both(rows, on_array, on_tensor, {}, {},
             [kind](const mx::array& x, const Call&) { return activation(x, kind); });
  };
  plain("relu_features", "relu", Activation::relu);
  plain("sigmoid_features", "sigmoid", Activation::sigmoid);
  plain("silu_features", "silu", Activation::silu);
  plain("tanh_features", "tanh", Activation::tanh);
  add_both(rows, "gelu_features", "gelu", {}, {{"approximate", Type::flag}},
           [](const mx::array& x, const Call& call) {
             return activation(x, Activation::gelu, {.approximate = call.flag("approximate")});
           });
  add_both(rows, "leaky_relu_features", "leaky_relu", {}, {{"negative_slope", Type::number}},
           [](const mx::array& x, const Call& call) {
             return activation(x, Activation::leaky_relu,
                               {.negative_slope = real(call, "negative_slope")});
           });
  add_both(rows, "softplus_features", "softplus", {},
           {{"beta", Type::number}, {"threshold", Type::number}},
           [](const mx::array& x, const Call& call) {
             return activation(x, Activation::softplus,
                               {.beta = real(call, "beta"), .threshold = real(call, "threshold")});
           });
  rows.push_back({"activation",
                  1,
                  {{"array", "array"}},
                  {{"kind", Type::text},
                   {"approximate", Type::flag},
                   {"negative_slope", Type::number},
                   {"beta", Type::number},
                   {"threshold", Type::number}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    const ActivationOptions options{call.flag("approximate"),
                                                    real(call, "negative_slope"),
                                                    real(call, "beta"), real(call, "threshold")};
                    return {activation(call.array("array"),
                                       parse_activation(call.text("kind"), "activation"), options)};
                  }});
}

Results run_batch_norm_act(const Call& call) {
  const Normalized made = batch_norm_act(
      call.array("feats"), {call.optional_array("weight"), call.optional_array("bias")},
      call.optional_array("mean"), call.optional_array("var"),
      {real(call, "eps"), call.optional_array("residual"), call.flag("relu")});
  return {made.y, made.mean, made.var};
}

void add_norms(std::vector<Operation>& rows) {
  const Operand mean{"mean", "array", Form::optional}, var{"var", "array", Form::optional};
  add_both(rows, "batch_norm_features", "batch_norm", {kWeight, kBias, mean, var}, {kEps},
           [](const mx::array& x, const Call& call) {
             return batch_norm_features(
                 x, {call.optional_array("weight"), call.optional_array("bias")},
                 call.optional_array("mean"), call.optional_array("var"), real(call, "eps"));
           });
  rows.push_back(
      {"batch_norm_act",
       1,
       {{"feats", "array"}, kWeight, kBias, mean, var, {"residual", "array", Form::optional}},
       {kEps, {"relu", Type::flag}},
       {"array", "array", "array"},
       Phase::features,
       run_batch_norm_act});
  add_both(rows, "layer_norm_features", "layer_norm", {kWeight, kBias}, {kEps},
           [](const mx::array& x, const Call& call) {
             return layer_norm_features(
                 x, {call.optional_array("weight"), call.optional_array("bias")},
                 real(call, "eps"));
           });
  add_both(rows, "rms_norm_features", "rms_norm", {kWeight}, {kEps},
           [](const mx::array& x, const Call& call) {
             return rms_norm_features(x, call.optional_array("weight"), real(call, "eps"));
           });
}

}  // namespace

std::vector<Operation> feature_operations() {
  std::vector<Operation> rows;
  add_activations(rows);
  add_norms(rows);
  return rows;
}

}  // namespace lattice::program
