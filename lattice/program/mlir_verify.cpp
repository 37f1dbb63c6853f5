// Refuses what the verifier and loader of the older package refuse: holds the table of its 31
// operations, and the rules around it.
#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "lattice/program/mlir_error.h"
#include "lattice/program/mlir_text.h"

namespace lattice::program::mlir {
namespace {

// Signs of operands and results: S sparse tensor, T features (rank 2), C coordinates ?x4xi32, A
// active 1xi32, P points ?x3xf32, I integers ?xi32, F features of float32; weights: K conv3d, L
// linear, E embedding, N channel, B bias. A small letter is optional.
struct Rule {
  const char* name;
  const char* operands;
  const char* results;
  const char* attributes;  // "kernel_size:size eps:positive ..."
};

#define LATTICE_KERNEL "kernel_size:size stride:size padding:padding dilation:size"
#define LATTICE_SUM " accumulation:accumulation"
constexpr Rule kRules[] = {
    {"weight", "", "W", "storage_key:key layout:layout packing:packing"},
    {"sparse.make", "CTA", "S", "stride:size coord_order:coord"},
    {"sparse.decompose", "S", "CTA", ""},
    {"sparse.with_features", "ST", "S", ""},
    {"sparse.reindex", "SS", "S", "fill:number"},
    {"conv3d", "SKb", "S", LATTICE_KERNEL LATTICE_SUM},
    {"subm_conv3d", "SKb", "S", "kernel_size:odd dilation:size" LATTICE_SUM},
    {"target_conv3d", "SSKb", "S", LATTICE_KERNEL LATTICE_SUM},
    {"conv_transpose3d", "SKb", "S", LATTICE_KERNEL LATTICE_SUM},
    {"target_conv_transpose3d", "SSKb", "S", LATTICE_KERNEL LATTICE_SUM},
    {"generative_conv_transpose3d", "SKb", "S", "kernel_size:size stride:size" LATTICE_SUM},
    {"normalized_subm_conv3d", "SKb", "S",
     "kernel_size:odd dilation:size eps:positive" LATTICE_SUM},
    {"normalized_conv_transpose3d", "SKb", "S", LATTICE_KERNEL " eps:positive" LATTICE_SUM},
    {"target_normalized_conv_transpose3d", "SSKb", "S", LATTICE_KERNEL " eps:positive" LATTICE_SUM},
    {"normalized_generative_conv_transpose3d", "SKb", "S",
     "kernel_size:size stride:size eps:positive" LATTICE_SUM},
    {"pool3d", "S", "S", "mode:pool_mode " LATTICE_KERNEL},
    {"pool_transpose3d", "Ss", "S", LATTICE_KERNEL},
    {"trilinear_upsample3d", "Ss", "S", "stride:size"},
    {"global_pool", "S", "T", "mode:pool_mode batch_size:batch"},
    {"voxelize", "PFIA", "S",
     "voxel_size:lengths origin:numbers reduction:voxel_reduction stride:size"},
    {"devoxelize", "PSIA", "T",
     "voxel_size:lengths origin:numbers interpolation:point_interpolation"},
    {"linear", "TLb", "T", ""},
    {"embedding_lookup", "IE", "F", ""},
    {"elementwise", "F", "F", "kind:function"},
    {"softmax", "F", "F", "axis:axis"},
    {"activation", "T", "T",
     "kind:activation approximate:gelu_approx alpha:slope beta:positive threshold:number"},
    {"batch_norm", "TNBNN", "T", "eps:positive"},
    {"layer_norm", "TNB", "T", "eps:positive"},
    {"rms_norm", "TN", "T", "eps:positive"},
    {"sparse.binary", "SS", "S", "op:binary_op join:join lhs_fill:number rhs_fill:number"},
    {"sparse.cat", "SS", "S", "join:join"},
};
#undef LATTICE_KERNEL
#undef LATTICE_SUM

struct Words {
  const char* name;
  std::vector<std::string> words;
};
const std::vector<Words>& words() {
  static const std::vector<Words> made = {
      {"coord", {"batch_x_y_z"}},
      {"pool_mode", {"sum", "max", "avg"}},
      {"voxel_reduction", {"sum", "mean"}},
      {"point_interpolation", {"nearest", "linear"}},
      {"activation", {"relu", "sigmoid", "gelu", "silu", "leaky_relu", "tanh", "softplus"}},
      {"gelu_approx", {"none", "precise", "tanh", "fast"}},
      {"binary_op", {"add", "sub", "mul", "maximum", "minimum"}},
      {"join", {"inner", "left", "right", "outer"}},
  };
  return made;
}

std::string joined(std::span<const std::string> list) {
  std::string made;
  for (const std::string& word : list) made += (made.empty() ? "" : ", ") + word;
  return made;
}

bool is_float(const std::string& dtype) {
  return dtype == "f32" || dtype == "f16" || dtype == "bf16";
}

const char* family_of(char sign) {
  switch (sign) {
    case 'K':
      return "conv3d";
    case 'L':
      return "linear";
    case 'E':
      return "embedding";
    case 'N':
      return "channel";
    case 'B':
      return "bias";
    default:
      return "";
  }
}
const char* layout_of(const std::string& family) {
  if (family == "conv3d") return "conv3d_o_xyz_i";
  if (family == "linear") return "linear_o_i";
  if (family == "embedding") return "embedding_n_c";
  if (family == "channel") return "channel_c";
  if (family == "bias") return "bias_c";
  return nullptr;
}

// One operation with its place.
class Verifier {
 public:
  Verifier(const Module& module, const Operation& operation)
      : module_(module), operation_(operation), name_("lattice." + operation.name) {}

  void run() {
    const Rule* rule = std::find_if(std::begin(kRules), std::end(kRules),
                                    [&](const Rule& r) { return operation_.name == r.name; });
    if (rule == std::end(kRules))
      wrong(
          "is no operation of version 2 of the format; it has 31, from lattice.weight to "
          "lattice.sparse.cat");
    operands(rule->operands);
    results(rule->results);
    attributes(rule->attributes);
    if (operation_.name == "weight") weight();
    dtypes();
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    fail_at(operation_.line, name_ + " " + what, operation_.name);
  }

  void operands(const std::string& signs) {
    const auto least = static_cast<size_t>(
        std::count_if(signs.begin(), signs.end(), [](char c) { return c < 'a'; }));
    const size_t found = operation_.operands.size();
    if (found < least || found > signs.size())
      wrong("takes " + std::to_string(signs.size()) + " operands, found " + std::to_string(found));
    for (size_t i = 0; i < found; ++i) value(operation_.operands[i], signs[i], "operand");
  }
  void results(const std::string& signs) {
    if (operation_.results.size() != signs.size())
      wrong("has " + std::to_string(signs.size()) + " results, found " +
            std::to_string(operation_.results.size()));
    for (size_t i = 0; i < signs.size(); ++i) value(operation_.results[i], signs[i], "result");
  }

  void value(int number, char small, const char* role) const {
    const char sign = static_cast<char>(small & ~0x20);
    const Type& type = module_.types[number];
    const auto mismatch = [&](const std::string& expected) {
      wrong(std::string(role) + " %" + module_.names[number] + " is " + type.text() +
            ", expected " + expected);
    };
    if (sign == 'W') return;
    if (sign == 'S') {
      if (type.kind != Type::Kind::sparse) mismatch("a sparse tensor");
      if (!is_float(type.dtype)) mismatch("features of f32, f16 or bf16");
      return;
    }
    if (*family_of(sign)) {
      if (type.kind != Type::Kind::weight || type.family != family_of(sign))
        mismatch("a weight of the family " + std::string(family_of(sign)));
      return;
    }
    if (type.kind != Type::Kind::tensor) mismatch("a tensor");
    tensor(type, sign, mismatch);
  }
  template <typename F>
  void tensor(const Type& type, char sign, const F& mismatch) const {
    const size_t rank = type.shape.size();
    const auto last = [&](int64_t size) { return rank == 2 && type.shape[1] == size; };
    if (sign == 'C' && (!last(4) || type.dtype != "i32")) mismatch("tensor<?x4xi32>");
    if (sign == 'P' && (!last(3) || type.dtype != "f32")) mismatch("tensor<?x3xf32>");
    if (sign == 'A' && (rank != 1 || type.shape[0] != 1 || type.dtype != "i32"))
      mismatch("tensor<1xi32>");
    if (sign == 'I' && (rank != 1 || type.dtype != "i32")) mismatch("tensor<?xi32>");
    if (sign == 'T' && (rank != 2 || !is_float(type.dtype)))
      mismatch("a tensor of rank 2 of f32, f16 or bf16");
    if (sign == 'F' && (rank != 2 || type.dtype != "f32")) mismatch("a tensor of rank 2 of f32");
  }

  void attributes(const std::string& rules) {
    std::set<std::string> known;
    for (size_t at = 0; at < rules.size();) {
      const size_t colon = rules.find(':', at), end = std::min(rules.find(' ', at), rules.size());
      const std::string key = rules.substr(at, colon - at);
      known.insert(key);
      const auto found = operation_.attributes.find(key);
      if (found == operation_.attributes.end())
        wrong("requires the attribute " + key + "; there are no defaults");
      attribute(key, rules.substr(colon + 1, end - colon - 1), found->second);
      at = end + 1;
    }
    for (const auto& [key, value] : operation_.attributes)
      if (!known.contains(key))
        wrong("has the attribute " + key + ", which it does not know; expected " +
              joined(std::vector<std::string>(known.begin(), known.end())));
  }

  [[noreturn]] void bad(const std::string& key, const std::string& expected) const {
    fail_at(operation_.line, name_ + ": " + key + " must be " + expected, operation_.name);
  }
  void attribute(const std::string& key, const std::string& rule, const Attribute& a) const {
    using Kind = Attribute::Kind;
    if (rule == "size" || rule == "odd" || rule == "padding") {
      triple(key, rule, a);
    } else if (rule == "lengths" || rule == "numbers") {
      if (a.kind != Kind::reals || a.reals.size() != 3) bad(key, "array<f64: three numbers>");
      for (const double v : a.reals)
        if (rule == "lengths" && !(v > 0)) bad(key, "positive numbers");
    } else if (rule == "number" || rule == "positive" || rule == "slope") {
      if (a.kind != Kind::real || a.suffix != "f32") bad(key, "a number of f32");
      const auto v = static_cast<float>(a.real);
      if (!std::isfinite(v)) bad(key, "a number that fits f32");
      if (rule == "positive" && !(v > 0)) bad(key, "a positive number");
      if (rule == "slope" && !(v >= 0)) bad(key, "a number that is not negative");
    } else if (rule == "batch" || rule == "axis") {
      if (a.kind != Kind::integer || a.suffix != "i64") bad(key, "an integer of i64");
      if (rule == "batch" && (a.integer < -1 || a.integer > INT32_MAX))
        bad(key, "-1 or a number of batch items");
      if (rule == "axis" && a.integer != -1 && a.integer != 1) bad(key, "-1 or 1");
    } else if (rule == "key" || rule == "accumulation" || rule == "function") {
      if (a.kind != Kind::string) bad(key, "a string");
      if (rule == "key" && a.text.empty()) bad(key, "a name that is not empty");
      if (rule == "accumulation" && a.text != "canonical_f32") bad(key, "\"canonical_f32\"");
      if (rule == "function" && a.text != "exp" && a.text != "round") bad(key, "exp or round");
    } else if (rule != "layout" && rule != "packing") {
      word(key, rule, a);
    }
  }
  void triple(const std::string& key, const std::string& rule, const Attribute& a) const {
    if (a.kind != Attribute::Kind::integers || a.integers.size() != 3)
      bad(key, "array<i64: three integers>");
    for (const int64_t v : a.integers) {
      if (v < (rule == "padding" ? 0 : 1) || v > INT32_MAX)
        bad(key, rule == "padding" ? "integers that are not negative" : "positive integers");
      if (rule == "odd" && v % 2 == 0) bad(key, "odd sizes");
    }
  }
  void word(const std::string& key, const std::string& rule, const Attribute& a) const {
    const auto list = std::find_if(words().begin(), words().end(),
                                   [&](const Words& w) { return rule == w.name; });
    const std::string expected = "#lattice." + rule + "<" + joined(list->words) + ">";
    if (a.kind != Attribute::Kind::word || a.suffix != rule || !a.fields.empty() ||
        std::find(list->words.begin(), list->words.end(), a.text) == list->words.end())
      bad(key, expected + (a.text.empty() ? "" : ", found " + a.text));
  }

  void weight() const {
    const Type& type = module_.types[operation_.results[0]];
    const char* layout = type.kind == Type::Kind::weight ? layout_of(type.family) : nullptr;
    if (!layout)
      wrong("has the type " + type.text() +
            ", expected a weight of conv3d, linear, embedding, channel or bias");
    const Attribute& given = operation_.attributes.at("layout");
    if (given.kind != Attribute::Kind::word || given.suffix != "weight_layout" ||
        given.text != layout)
      bad("layout", "#lattice.weight_layout<" + std::string(layout) + "> for the family " +
                        type.family + (given.text.empty() ? "" : ", found " + given.text));
    const Attribute& packing = operation_.attributes.at("packing");
    if (packing.kind != Attribute::Kind::word || packing.suffix != "packing")
      bad("packing", "#lattice.packing<...>");
    if (packing.text == "dense") {
      if (!packing.fields.empty()) bad("packing", "#lattice.packing<dense> without fields");
      return;
    }
    if (type.family != "conv3d" && type.family != "linear")
      wrong("of the family " + type.family + " cannot be packed; use #lattice.packing<dense>");
    packed(packing);
  }
  void packed(const Attribute& packing) const {
    if (packing.text != "int4" && packing.text != "int8")
      bad("packing", "dense, int4 or int8, found " + packing.text);
    const auto field = [&](const char* key) {
      const auto found = packing.fields.find(key);
      return found == packing.fields.end() ? std::string() : found->second;
    };
    const std::string group = field("group_size"), scales = field("scale_dtype");
    if (group != "32" && group != "64" && group != "128")
      bad("packing", "group_size = 32, 64 or 128, found " + group);
    if (scales != "f16" && scales != "f32")
      bad("packing", "scale_dtype = f16 or f32, found " + scales);
    if (field("mode") != "affine") bad("packing", "mode = affine, found " + field("mode"));
    if (packing.fields.size() != 3) bad("packing", "group_size, scale_dtype and mode");
  }

  // Dtypes that must agree: of all sparse tensors and features, but for convolutions, whose
  // results the older package never checks, and for targets, which only lend their rows.
  void dtypes() const {
    if (operation_.name.find("conv") != std::string::npos || operation_.name == "weight") return;
    const auto rows = [&](int v) {
      const Type& t = module_.types[v];
      return t.kind == Type::Kind::sparse || (t.kind == Type::Kind::tensor && is_float(t.dtype));
    };
    // The features that are replaced, and points.
    const bool skips_first =
        operation_.name == "sparse.with_features" || operation_.name == "devoxelize";
    const bool joins = operation_.name == "sparse.binary" || operation_.name == "sparse.cat";
    const std::string* first = nullptr;
    for (size_t i = 0; i < operation_.operands.size(); ++i) {
      const int v = operation_.operands[i];
      if (!rows(v) || (i == 0 && skips_first)) continue;
      if (!first)
        first = &module_.types[v].dtype;
      else if (joins)
        same(v, *first);
    }
    for (const int v : operation_.results)
      if (first && rows(v)) same(v, *first);
  }
  void same(int value, const std::string& dtype) const {
    if (module_.types[value].dtype != dtype)
      wrong("has %" + module_.names[value] + " of the dtype " + module_.types[value].dtype +
            ", expected " + dtype + " as in its other operands");
  }

  const Module& module_;
  const Operation& operation_;
  std::string name_;
};

const Attribute& module_attribute(const Module& module, const char* key, Attribute::Kind kind,
                                  const char* expected) {
  const auto found = module.attributes.find(key);
  if (found == module.attributes.end() || found->second.kind != kind)
    fail_at(1, "the module requires " + std::string(key) + " = " + expected);
  return found->second;
}

void verify_names(const Module& module, const char* names, const char* roles, size_t count,
                  const std::vector<std::string>& allowed) {
  const auto strings = Attribute::Kind::strings;
  const Attribute& named = module_attribute(module, names, strings, "a list of strings");
  const Attribute& given = module_attribute(module, roles, strings, "a list of strings");
  for (const Attribute* list : {&named, &given})
    if (list->strings.size() != count)
      fail_at(1, std::string(list == &named ? names : roles) + " has " +
                     std::to_string(list->strings.size()) + " items, expected " +
                     std::to_string(count) + ", one for each " +
                     (allowed.size() > 2 ? "argument" : "result") + " of @forward");
  std::set<std::string> seen;
  for (const std::string& name : named.strings) {
    if (name.empty()) fail_at(1, std::string(names) + " contains an empty name");
    if (!seen.insert(name).second)
      fail_at(1, std::string(names) + " contains \"" + name + "\" twice");
  }
  for (const std::string& role : given.strings)
    if (std::find(allowed.begin(), allowed.end(), role) == allowed.end())
      fail_at(1, std::string(roles) + " contains \"" + role + "\", expected " + joined(allowed));
}

void verify_module(const Module& module) {
  constexpr const char* kDigest =
      "1380f1e819fc0eb1af587202ecec3c14ec2c981d249333c5061f0263f82072ad";
  const Attribute& version =
      module_attribute(module, "lattice.ir_version", Attribute::Kind::integer, "2");
  if (version.integer != 2)
    throw Error(ErrorCode::version, "[Program.load] line 1: lattice.ir_version is " +
                                        std::to_string(version.integer) +
                                        ", and only 2 is read; export the network again");
  const Attribute& digest =
      module_attribute(module, "lattice.schema_digest", Attribute::Kind::string, kDigest);
  if (digest.text != kDigest)
    throw Error(ErrorCode::version, "[Program.load] line 1: lattice.schema_digest is \"" +
                                        digest.text + "\", expected \"" + kDigest +
                                        "\"; export the network with a version 2 exporter");
  verify_names(module, "lattice.input_names", "lattice.input_roles",
               static_cast<size_t>(module.arguments),
               {"tensor", "sparse_coords", "sparse_features", "sparse_active"});
  verify_names(module, "lattice.output_names", "lattice.output_roles", module.outputs.size(),
               {"tensor", "sparse_tensor"});
  const Attribute& file = module_attribute(module, "lattice.weight_file", Attribute::Kind::string,
                                           "\"weights.safetensors\"");
  if (file.text != "weights.safetensors")
    fail_at(1, "lattice.weight_file is \"" + file.text + "\", expected \"weights.safetensors\"");
}

}  // namespace

void verify(const Module& module) {
  verify_module(module);
  for (int i = 0; i < module.arguments; ++i)
    if (module.types[i].kind != Type::Kind::tensor)
      fail_at(1, "the argument %" + module.names[i] + " of @forward is " + module.types[i].text() +
                     ", expected a tensor; a sparse tensor is three arguments");
  for (const Operation& operation : module.operations) Verifier(module, operation).run();
  if (module.outputs.empty())
    fail_at(module.return_line, "@forward returns nothing, expected at least one value");
  for (const int v : module.outputs)
    if (module.types[v].kind == Type::Kind::weight)
      fail_at(module.return_line, "@forward returns the weight %" + module.names[v] +
                                      ", expected tensors and sparse tensors");
}

}  // namespace lattice::program::mlir
