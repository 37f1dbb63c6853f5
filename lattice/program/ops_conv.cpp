// Convolutions and linear layers in programs; docs/ops/conv.md has the formulas.
#include "lattice/core/errors.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

constexpr Operand kX{"x", "sparse"}, kWeight{"weight", "weight"},
    kBias{"bias", "array", Form::optional}, kTarget{"coordinates", "sparse|array", Form::optional};
constexpr Attribute kGroups{"groups", Type::integer, false, -1, 1};
constexpr Attribute kEps{"eps", Type::number};

ConvOptions options_of(const Call& call, bool target) {
  return {kernel_of(call), target ? target_of(call, "coordinates") : std::nullopt,
          call.integer("groups")};
}

// The row of a convolution; `sizes`: what it has of a kernel, `target`: whether it takes
// coordinates.
Operation row(const char* name, std::vector<Attribute> sizes, bool target,
              std::function<Results(const Call&)> run) {
  std::vector<Operand> operands{kX, kWeight, kBias};
  if (target) operands.push_back(kTarget);
  sizes.push_back(kGroups);
  return {name, 1, operands, sizes, {"sparse"}, Phase::features, std::move(run)};
}

template <typename F>
Operation convolution(const char* name, const std::vector<Attribute>& sizes, bool target, F f) {
  return row(name, sizes, target, [f, target](const Call& call) -> Results {
    return {f(call.sparse("x"), call.weight("weight"), call.optional_array("bias"),
              options_of(call, target), mx::StreamOrDevice{})};
  });
}

template <typename F>
Operation normalized(const char* name, const std::vector<Attribute>& sizes, bool target, F f) {
  Operation made = row(name, sizes, target, [f, target](const Call& call) -> Results {
    return {f(call.sparse("x"), call.weight("weight"), call.optional_array("bias"),
              options_of(call, target), static_cast<float>(call.number("eps")),
              mx::StreamOrDevice{})};
  });
  made.attributes.push_back(kEps);
  return made;
}

RelationKind kind_of(const Call& call) {
  for (const RelationKind kind :
       {RelationKind::forward, RelationKind::submanifold, RelationKind::transposed,
        RelationKind::generative, RelationKind::reached, RelationKind::reached_transposed})
    if (call.text("kind") == kind_name(kind)) return kind;
  throw Error(ErrorCode::version,
              "[Program] " + call.place() + ": unknown kind \"" + call.text("kind") + "\"",
              "conv_norm", "kind");
}

// Version 2 knows reached supports.
template <typename F>
Operation reaching(const char* name, const std::vector<Attribute>& sizes, F f) {
  Operation made = row(name, sizes, true, [f](const Call& call) -> Results {
    ConvOptions options = options_of(call, true);
    options.spec = reached_kernel_of(call);
    options.support = support_of(call);
    return {f(call.sparse("x"), call.weight("weight"), call.optional_array("bias"), options,
              mx::StreamOrDevice{})};
  });
  made.version = 2;
  made.attributes.insert(made.attributes.end(), {kSupport, kBounds, kOrder});
  return made;
}

Operation inverse_operation(std::vector<Attribute> sizes) {
  sizes.push_back(kGroups);
  return {
      "inverse_conv3d",
      1,
      {kX, kWeight, {"fine", "sparse|array"}, kBias},
      sizes,
      {"sparse"},
      Phase::features,
      [](const Call& call) -> Results {
        return {inverse_conv3d(call.sparse("x"), call.weight("weight"), *target_of(call, "fine"),
                               call.optional_array("bias"), options_of(call, false))};
      }};
}

Results run_conv_norm(const Call& call) {
  const NormAfter norm{call.array("mean"),
                       call.array("var"),
                       call.optional_array("norm_weight"),
                       call.optional_array("norm_bias"),
                       static_cast<float>(call.number("eps")),
                       call.optional_sparse("residual"),
                       call.flag("relu")};
  ConvOptions options = options_of(call, true);
  if (call.node().operation->version > 1) options.spec = reached_kernel_of(call);
  return {conv_norm(kind_of(call), call.sparse_list("x"), call.weight("weight"),
                    call.optional_array("bias"), options, norm)};
}

Operation conv_norm_operation(int version) {
  Operation made{"conv_norm",
                 version,
                 {{"x", "sparse", Form::list},
                  kWeight,
                  kBias,
                  {"mean", "array"},
                  {"var", "array"},
                  {"norm_weight", "array", Form::optional},
                  {"norm_bias", "array", Form::optional},
                  {"residual", "sparse", Form::optional},
                  kTarget},
                 {{"kind", Type::text},
                  kEps,
                  {"relu", Type::flag},
                  kKernelSize,
                  kStride,
                  kPadding,
                  kDilation,
                  kGroups},
                 {"sparse"},
                 Phase::features,
                 run_conv_norm};
  if (version > 1) made.attributes.insert(made.attributes.end(), {kBounds, kOrder});
  return made;
}

}  // namespace

std::vector<Operation> conv_operations() {
  const std::vector<Attribute> all{kKernelSize, kStride, kPadding, kDilation};
  const std::vector<Attribute> centered{kKernelSize, kDilation}, made{kKernelSize, kStride};
  return {
      conv_norm_operation(1),
      conv_norm_operation(2),
      convolution("conv3d", all, true, conv3d),
      reaching("conv3d", all, conv3d),
      inverse_operation(all),
      convolution("subm_conv3d", centered, false, subm_conv3d),
      convolution("conv_transpose3d", all, true, conv_transpose3d),
      reaching("conv_transpose3d", all, conv_transpose3d),
      convolution("generative_conv_transpose3d", made, true, generative_conv_transpose3d),
      normalized("normalized_subm_conv3d", centered, false, normalized_subm_conv3d),
      normalized("normalized_conv_transpose3d", all, true, normalized_conv_transpose3d),
      normalized("normalized_generative_conv_transpose3d", made, true,
                 normalized_generative_conv_transpose3d),
      {"linear",
       1,
       {kX, kWeight, kBias},
       {},
       {"sparse"},
       Phase::features,
       [](const Call& call) -> Results {
         return {linear(call.sparse("x"), call.weight("weight"), call.optional_array("bias"))};
       }},
      {"linear_features",
       1,
       {{"feats", "array"}, kWeight, kBias},
       {},
       {"array"},
       Phase::features,
       [](const Call& call) -> Results {
         return {linear_features(call.array("feats"), call.weight("weight"),
                                 call.optional_array("bias"))};
       }},
  };
}

}  // namespace lattice::program
