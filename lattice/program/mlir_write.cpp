#include "lattice/program/mlir_write.h"

#include <mlx/ops.h>

#include <charconv>
#include <cmath>
#include <set>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"

namespace lattice::program::mlir {
namespace {

constexpr const char* kDigest = "1380f1e819fc0eb1af587202ecec3c14ec2c981d249333c5061f0263f82072ad";

std::string sparse_type(const std::string& dtype) {
  return "!lattice.sparse_tensor<rank = 3, coord = batch_x_y_z, feature = row_channel, dtype = " +
         dtype + ">";
}

// Floats of the text have a point.
std::string real(double value) {
  char digits[64];
  const auto end = std::to_chars(digits, digits + sizeof(digits), static_cast<float>(value)).ptr;
  std::string text(digits, end);
  if (text.find('.') != std::string::npos) return text;
  const size_t exponent = text.find('e');
  return exponent == std::string::npos ? text + ".0" : text.insert(exponent, ".0");
}
std::string f32(const char* key, double value) {
  return std::string(key) + " = " + real(value) + " : f32";
}
std::string triple(const char* key, const Triple& v) {
  return std::string(key) + " = array<i64: " + std::to_string(v[0]) + ", " + std::to_string(v[1]) +
         ", " + std::to_string(v[2]) + ">";
}
std::string word(const char* key, const char* kind, const std::string& value) {
  return std::string(key) + " = #lattice." + kind + "<" + value + ">";
}
std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
  return text;
}

// A value of the text: a name with a type, and its channels.
struct Value {
  std::string name, type, dtype;
  int64_t channels = -1;
};

class Writer {
 public:
  explicit Writer(const Loaded& program) : program_(program), graph_(program.graph) {}

  std::pair<std::string, TensorFile> run() {
    values_.resize(graph_.names.size());
    for (size_t i = 0; i < graph_.inputs.size(); ++i) input(i);
    for (const Node& node : graph_.nodes) {
      now_ = &node;
      write(node);
    }
    std::vector<std::string> names, roles, given, types;
    for (const auto& [name, number] : graph_.outputs) {
      const Value& value = values_[static_cast<size_t>(number)];
      if (value.name.empty()) refuse_output(name);
      names.push_back('"' + name + '"');
      roles.push_back(value.type[0] == '!' ? "\"sparse_tensor\"" : "\"tensor\"");
      given.push_back(value.name);
      types.push_back(value.type);
    }
    const std::string results = types.size() == 1 ? types[0] : "(" + joined(types) + ")";
    std::string text = "module attributes {\n  lattice.ir_version = 2,\n";
    text += "  lattice.schema_digest = \"" + std::string(kDigest) + "\",\n";
    text += "  lattice.input_names = [" + joined(input_names_) + "],\n";
    text += "  lattice.input_roles = [" + joined(input_roles_) + "],\n";
    text += "  lattice.output_names = [" + joined(names) + "],\n";
    text += "  lattice.output_roles = [" + joined(roles) + "],\n";
    text += "  lattice.weight_file = \"weights.safetensors\"\n} {\n";
    text += "  func.func @forward(" + joined(arguments_) + ") -> " + results + " {\n" + body_;
    text += "    return " + joined(given) + " : " + joined(types) + "\n  }\n}\n";
    return {text, std::move(file_)};
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    const NodeView view(*now_);
    throw Error(ErrorCode::version,
                "[Program.export_mlir] " + view.place() + ": version 2 of the older format " + why,
                now_->operation->name);
  }
  [[noreturn]] static void refuse_output(const std::string& name) {
    throw Error(ErrorCode::version,
                "[Program.export_mlir] output \"" + name + "\" cannot be said in version 2",
                "Program.export_mlir", name);
  }

  std::string argument(const std::string& name, const std::string& type, const char* role) {
    const std::string value = "%in" + std::to_string(arguments_.size());
    arguments_.push_back(value + ": " + type);
    input_names_.push_back('"' + name + '"');
    input_roles_.push_back('"' + std::string(role) + '"');
    return value;
  }

  void input(size_t i) {
    const ProgramPort& port = graph_.inputs[i];
    const std::string dtype(name_of(port.type.dtype));
    if (port.type.kind == "sparse") {
      const int64_t c = port.type.shape.back();
      const std::string features = "tensor<?x" + std::to_string(c) + "x" + dtype + ">";
      const Value coords{argument(port.name + "_coords", "tensor<?x4xi32>", "sparse_coords"),
                         "tensor<?x4xi32>", "i32", 4};
      const Value feats{argument(port.name + "_features", features, "sparse_features"), features,
                        dtype, c};
      const Value active{argument(port.name + "_active", "tensor<1xi32>", "sparse_active"),
                         "tensor<1xi32>", "i32", -1};
      values_[i] = make(coords, feats, active, port.type.stride);
      return;
    }
    std::string type = "tensor<";
    for (const int64_t n : port.type.shape) type += (n < 0 ? "?" : std::to_string(n)) + "x";
    type += dtype + ">";
    values_[i] = {argument(port.name, type, "tensor"), type, dtype,
                  port.type.shape.size() > 1 ? port.type.shape[1] : -1};
  }

  // One line; gives its result.
  Value line(const std::string& name, const std::vector<Value>& operands,
             const std::vector<std::string>& attributes, Value result) {
    result.name = "%v" + std::to_string(count_++);
    std::vector<std::string> names, types;
    for (const Value& operand : operands) {
      names.push_back(operand.name);
      types.push_back(operand.type);
    }
    body_ += "    " + result.name + " = lattice." + name + " " + joined(names);
    if (!attributes.empty()) body_ += " {" + joined(attributes) + "}";
    body_ += " : (" + joined(types) + ") -> " + result.type + "\n";
    return result;
  }
  static Value sparse(const std::string& dtype, int64_t channels) {
    return {"", sparse_type(dtype), dtype, channels};
  }
  static Value rows(const std::string& dtype, int64_t channels) {
    return {"", "tensor<?x" + (channels < 0 ? "?" : std::to_string(channels)) + "x" + dtype + ">",
            dtype, channels};
  }

  Value make(const Value& coords, const Value& feats, const Value& active, const Triple& stride) {
    return line("sparse.make", {coords, feats, active},
                {triple("stride", stride), word("coord_order", "coord", "batch_x_y_z")},
                sparse(feats.dtype, feats.channels));
  }
  std::vector<Value> decompose(const Value& x) {
    const std::string at = std::to_string(count_++);
    const Value feats = rows(x.dtype, x.channels);
    const std::vector<Value> parts{{"%c" + at, "tensor<?x4xi32>", "i32", 4},
                                   {"%f" + at, feats.type, x.dtype, x.channels},
                                   {"%a" + at, "tensor<1xi32>", "i32", -1}};
    body_ += "    %c" + at + ", %f" + at + ", %a" + at + " = lattice.sparse.decompose " + x.name +
             " : " + x.type + " -> (tensor<?x4xi32>, " + feats.type + ", tensor<1xi32>)\n";
    return parts;
  }
  Value with_features(const Value& x, const Value& feats) {
    return line("sparse.with_features", {x, feats}, {}, sparse(feats.dtype, feats.channels));
  }

  // A weight of the file as a value.
  Value weight(const std::string& key, const char* family, const char* layout,
               const std::string& packing, const std::string& dtype) {
    Value made{"%w" + std::to_string(count_++),
               "!lattice.weight<" + std::string(family) + ", " + dtype + ">", dtype, -1};
    std::string escaped;
    for (const char c : key) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    body_ += "    " + made.name + " = lattice.weight @" + made.name.substr(1) +
             " {storage_key = \"" + escaped + "\", layout = #lattice.weight_layout<" + layout +
             ">, packing = #lattice.packing<" + packing + ">} : " + made.type + "\n";
    return made;
  }
  Value vector(const mx::array& array, const std::string& key, bool bias) {
    file_.arrays.insert_or_assign(key, array);
    return weight(key, bias ? "bias" : "channel", bias ? "bias_c" : "channel_c", "dense",
                  std::string(name_of(array.dtype())));
  }

  const Reference& reference(const char* operand) const {
    return now_->operands[NodeView(*now_).operand_index(operand)];
  }
  bool given(const char* operand) const { return reference(operand).kind != Reference::Kind::none; }
  Value value(const Reference& r) const {
    if (r.kind != Reference::Kind::value || values_[static_cast<size_t>(r.value)].name.empty())
      refuse("takes computed values here, found a constant");
    return values_[static_cast<size_t>(r.value)];
  }
  Value value(const char* operand) const { return value(reference(operand)); }
  const mx::array& array(const char* operand) const {
    const Reference& r = reference(operand);
    const Weight* found =
        r.kind == Reference::Kind::tensor ? &program_.tensors.at(r.tensor) : nullptr;
    if (!found || !std::holds_alternative<mx::array>(*found))
      refuse("needs `" + std::string(operand) + "` as a tensor of the file");
    return std::get<mx::array>(*found);
  }
  Value vector(const char* operand, bool bias) {
    return vector(array(operand), reference(operand).tensor, bias);
  }
  // Of a norm, also where the network has none.
  Value vector_or(const char* operand, bool bias, int64_t channels, float otherwise) {
    if (given(operand)) return vector(operand, bias);
    const std::string key = "constant." + std::to_string(count_);
    return vector(mx::full({static_cast<int>(channels)}, otherwise), key, bias);
  }

  // The kernel of a convolution, or the matrix of a linear layer: a value, with its C_out.
  Value kernel(bool linear, const Triple& size) {
    const Reference& r = reference("weight");
    if (r.kind != Reference::Kind::tensor) refuse("needs the weight as a tensor of the file");
    const char* family = linear ? "linear" : "conv3d";
    const char* layout = linear ? "linear_o_i" : "conv3d_o_xyz_i";
    const Weight& found = program_.tensors.at(r.tensor);
    if (const auto* packed = std::get_if<QuantizedWeight>(&found)) {
      const std::string dtype(name_of(packed->dtype()));
      if (dtype == "bf16") refuse("has no packed weights with scales of bf16");
      const std::string key =
          r.tensor.ends_with(".weight") ? r.tensor.substr(0, r.tensor.size() - 7) : r.tensor;
      file_.arrays.insert_or_assign(key + ".weight", packed->weight());
      file_.arrays.insert_or_assign(key + ".scales", packed->scales());
      file_.arrays.insert_or_assign(key + ".biases", packed->biases());
      Value made = weight(key, family, layout,
                          "int" + std::to_string(packed->bits()) +
                              ", group_size = " + std::to_string(packed->group_size()) +
                              ", scale_dtype = " + dtype + ", mode = affine",
                          dtype);
      made.channels = packed->out_channels();
      return made;
    }
    mx::array dense = std::get<mx::array>(found);
    const int x = static_cast<int>(size[0]), y = static_cast<int>(size[1]),
              z = static_cast<int>(size[2]);
    if (!linear && dense.ndim() == 2)  // (C_out, C_in) of one offset
      dense = mx::reshape(dense, {dense.shape(0), 1, 1, 1, dense.shape(1)});
    else if (!linear && dense.ndim() == 3)  // (K, C_in, C_out)
      dense = mx::transpose(mx::reshape(dense, {x, y, z, dense.shape(1), dense.shape(2)}),
                            {4, 0, 1, 2, 3});
    file_.arrays.insert_or_assign(r.tensor, dense);
    Value made = weight(r.tensor, family, layout, "dense", std::string(name_of(dense.dtype())));
    made.channels = dense.shape(0);
    return made;
  }

  std::vector<std::string> sizes(bool subm, bool generated = false) const {
    const NodeView view(*now_);
    std::vector<std::string> made{triple("kernel_size", view.triple("kernel_size"))};
    if (!subm) made.push_back(triple("stride", view.triple("stride")));
    if (!subm && !generated) made.push_back(triple("padding", view.triple("padding")));
    if (!generated) made.push_back(triple("dilation", view.triple("dilation")));
    return made;
  }
  void check_padding(const std::vector<const char*>& names) const {
    for (const char* name : names)
      for (const int64_t v : NodeView(*now_).triple(name))
        if (v < 0) refuse("has no negative padding");
  }

  // `kind`: subm, forward, transposed. eps >= 0: normalized.
  Value convolution(const Value& x, const std::string& kind, bool target, bool normalized) {
    const NodeView view(*now_);
    if (view.integer("groups") != 1) refuse("has no groups of channels");
    const bool subm = kind == "submanifold";
    if (kind == "generative")
      refuse("keeps one row per edge in a generative convolution; ours merges them");
    if (!subm) check_padding({"padding"});
    std::string name = subm ? "subm_conv3d" : kind == "forward" ? "conv3d" : "conv_transpose3d";
    if (normalized && view.triple("kernel_size") == Triple{1, 1, 1})
      refuse("does not normalize a 1x1x1 kernel; ours does");
    if (normalized) name = "normalized_" + name;
    std::vector<Value> operands{x};
    if (target && given("coordinates")) {
      name = "target_" + name;
      operands.push_back(value("coordinates"));
      if (operands.back().type[0] != '!') refuse("takes a sparse tensor as target");
    }
    operands.push_back(kernel(false, view.triple("kernel_size")));
    const int64_t channels = operands.back().channels;
    if (given("bias")) operands.push_back(vector("bias", true));
    std::vector<std::string> attributes = sizes(subm);
    if (normalized) attributes.push_back(f32("eps", view.number("eps")));
    attributes.emplace_back("accumulation = \"canonical_f32\"");
    return line(name, operands, attributes, sparse(x.dtype, channels));
  }

  Value batch_norm(const Value& feats) {
    const int64_t c = feats.channels;
    return line("batch_norm",
                {feats, vector_or(has("norm_weight") ? "norm_weight" : "weight", false, c, 1),
                 vector_or(has("norm_bias") ? "norm_bias" : "bias", true, c, 0),
                 vector("mean", false), vector("var", false)},
                {f32("eps", NodeView(*now_).number("eps"))}, rows(feats.dtype, c));
  }
  bool has(std::string_view operand) const {
    for (const Operand& o : now_->operation->operands)
      if (operand == o.name) return true;
    return false;
  }
  Value activation(const Value& feats, const std::string& kind, const std::string& approximate,
                   double alpha, double beta, double threshold) {
    return line("activation", {feats},
                {word("kind", "activation", kind), word("approximate", "gelu_approx", approximate),
                 f32("alpha", alpha), f32("beta", beta), f32("threshold", threshold)},
                rows(feats.dtype, feats.channels));
  }
  // f on the features of a tensor, or on an array.
  template <typename F>
  Value on_rows(const Value& x, const F& f) {
    if (x.type[0] != '!') return f(x);
    return with_features(x, f(decompose(x)[1]));
  }

  Value conv_norm() {
    const NodeView view(*now_);
    const std::vector<Reference>& items = reference("x").items;
    Value x = value(items.at(0));
    for (size_t i = 1; i < items.size(); ++i) {
      const Value next = value(items[i]);
      x = line("sparse.cat", {x, next}, {word("join", "join", "inner")},
               sparse(x.dtype, x.channels + next.channels));
    }
    Value y = convolution(x, view.text("kind"), true, false);
    y = on_rows(y, [&](const Value& feats) { return batch_norm(feats); });
    if (given("residual"))
      y = line("sparse.binary", {y, value("residual")},
               {word("op", "binary_op", "add"), word("join", "join", "inner"), f32("lhs_fill", 0),
                f32("rhs_fill", 0)},
               sparse(y.dtype, y.channels));
    if (view.flag("relu"))
      y = on_rows(y, [&](const Value& f) { return activation(f, "relu", "none", 0.01, 1, 20); });
    return y;
  }

  void set(const Value& made) { values_[static_cast<size_t>(now_->results[0])] = made; }

  void write(const Node& node) {
    const std::string name = node.operation->name;
    refuse_reached(node);
    if (name == "conv_norm") return set(conv_norm());
    if (name.find("conv") != std::string::npos && name != "point_conv") return write_conv(name);
    if (write_features(name) || write_pool(name) || write_join(name) || write_older(name)) return;
    refuse("has no operation for `" + name + "`");
  }

  void refuse_reached(const Node& node) const {
    for (size_t i = 0; i < node.attributes.size(); ++i)
      if (const auto* word = std::get_if<std::string>(&node.attributes[i]);
          word && word->starts_with("reached"))
        refuse("has no reached supports");
    if (std::string_view(node.operation->name) == "inverse_conv3d")
      refuse("has no operation for `inverse_conv3d`");
  }

  void write_conv(std::string name) {
    const bool normalized = name.starts_with("normalized_");
    if (normalized) name = name.substr(11);
    const std::string kind = name == "subm_conv3d"        ? "submanifold"
                             : name == "conv3d"           ? "forward"
                             : name == "conv_transpose3d" ? "transposed"
                                                          : "generative";
    set(convolution(value("x"), kind, has("coordinates"), normalized));
  }

  bool write_features(const std::string& full) {
    const bool on_array = full.ends_with("_features");
    const std::string name = on_array ? full.substr(0, full.size() - 9) : full;
    const NodeView view(*now_);
    const auto x = [&] { return value(has("feats") ? "feats" : has("array") ? "array" : "x"); };
    const auto simple = [&](const std::string& kind, const std::string& how = "none",
                            double alpha = 0.01, double beta = 1, double threshold = 20) {
      set(on_rows(
          x(), [&](const Value& f) { return activation(f, kind, how, alpha, beta, threshold); }));
      return true;
    };
    if (name == "relu" || name == "sigmoid" || name == "silu" || name == "tanh")
      return simple(name);
    if (name == "gelu") return simple(name, view.flag("approximate") ? "tanh" : "none");
    if (name == "leaky_relu") return simple(name, "none", view.number("negative_slope"));
    if (name == "softplus")
      return simple(name, "none", 0.01, view.number("beta"), view.number("threshold"));
    if (name == "activation")
      return simple(view.text("kind"), view.flag("approximate") ? "tanh" : "none",
                    view.number("negative_slope"), view.number("beta"), view.number("threshold"));
    if (name == "linear") return set(linear(x())), true;
    if (name == "batch_norm") {
      set(on_rows(x(), [&](const Value& f) { return batch_norm(f); }));
      return true;
    }
    if (name == "layer_norm" || name == "rms_norm") {
      set(on_rows(x(), [&](const Value& f) {
        std::vector<Value> operands{f, vector_or("weight", false, f.channels, 1)};
        if (name == "layer_norm") operands.push_back(vector_or("bias", true, f.channels, 0));
        return line(name, operands, {f32("eps", view.number("eps"))}, rows(f.dtype, f.channels));
      }));
      return true;
    }
    return false;
  }
  Value linear(const Value& x) {
    return on_rows(x, [&](const Value& f) {
      std::vector<Value> operands{f, kernel(true, {1, 1, 1})};
      const int64_t channels = operands.back().channels;
      if (given("bias")) operands.push_back(vector("bias", true));
      return line("linear", operands, {}, rows(f.dtype, channels));
    });
  }

  // Whether every row of a maximum has an edge: the older package gives -inf elsewhere, ours 0.
  bool covers() const {
    const NodeView view(*now_);
    const Triple size = view.triple("kernel_size"), stride = view.triple("stride");
    for (int axis = 0; axis < 3; ++axis) {
      const int64_t reach = size[axis] % 2 ? size[axis] / 2 + 1 : size[axis];
      if (view.triple("padding")[axis] != 0 || view.triple("dilation")[axis] != 1 ||
          reach < stride[axis])
        return false;
    }
    return true;
  }

  bool write_pool(const std::string& name) {
    const NodeView view(*now_);
    const auto mode = [&]() -> std::string {
      if (name.find("sum") != std::string::npos) return "sum";
      if (name.find("avg") != std::string::npos) return "avg";
      if (name.find("max") != std::string::npos) return "max";
      const std::string& given = view.text("mode");
      return given == "mean" ? "avg" : given;
    };
    if (name.starts_with("global_")) {
      const Value x = value("x");
      const int64_t batch = view.optional_integer("batch_size").value_or(-1);
      set(line("global_pool", {x},
               {word("mode", "pool_mode", mode()), "batch_size = " + std::to_string(batch)},
               rows(x.dtype, x.channels)));
      return true;
    }
    const bool up = name == "pool_transpose3d" || name == "trilinear_upsample3d";
    if (!up && name != "older_max_pool" && !name.ends_with("pool3d")) return false;
    const Value x = value("x");
    std::vector<Value> operands{x};
    if (up && given("target")) {
      operands.push_back(value("target"));
      if (operands.back().type[0] != '!') refuse("takes a sparse tensor as target");
    }
    if (name == "trilinear_upsample3d") {
      set(line(name, operands, {triple("stride", view.triple("stride"))},
               sparse(x.dtype, x.channels)));
      return true;
    }
    check_padding({"padding"});
    std::vector<std::string> attributes = sizes(false);
    if (!up) {
      const std::string how = name == "older_max_pool" ? "max" : mode();
      if (how == "max" && name != "older_max_pool" && !covers())
        refuse("gives -inf for the maximum of an empty window, ours gives 0");
      attributes.insert(attributes.begin(), word("mode", "pool_mode", how));
    }
    set(line(up ? name : "pool3d", operands, attributes, sparse(x.dtype, x.channels)));
    return true;
  }

  bool write_join(const std::string& name) {
    const NodeView view(*now_);
    if (name == "feats") return set(decompose(value("x"))[1]), true;
    if (name == "with_feats") return set(with_features(value("x"), value("feats"))), true;
    if (name == "reindex_sparse") {
      const Value x = value("x"), target = value("target");
      if (target.type[0] != '!') refuse("takes a sparse tensor as target");
      set(line("sparse.reindex", {x, target}, {f32("fill", view.number("fill"))},
               sparse(x.dtype, x.channels)));
      return true;
    }
    if (name == "cat" || name == "sparse_cat_aligned") {
      if (name != "cat" && (view.number("lhs_fill") != 0 || view.number("rhs_fill") != 0))
        refuse("fills rows of a cat with 0");
      std::vector<Value> all;
      if (name == "cat")
        for (const Reference& item : reference("tensors").items) all.push_back(value(item));
      else
        all = {value("lhs"), value("rhs")};
      Value made = all.at(0);
      for (size_t i = 1; i < all.size(); ++i)
        made = line("sparse.cat", {made, all[i]}, {word("join", "join", view.text("join"))},
                    sparse(made.dtype, made.channels + all[i].channels));
      set(made);
      return true;
    }
    if (!has("lhs") || !has("rhs")) return false;
    const Value lhs = value("lhs"), rhs = value("rhs");
    const std::string op = name == "sparse_binary" ? view.text("op") : name.substr(7);
    set(line("sparse.binary", {lhs, rhs},
             {word("op", "binary_op", op), word("join", "join", view.text("join")),
              f32("lhs_fill", view.number("lhs_fill")), f32("rhs_fill", view.number("rhs_fill"))},
             sparse(lhs.dtype, lhs.channels)));
    return true;
  }

  // The further parts of an artifact that was read.
  bool write_older(const std::string& name) {
    const NodeView view(*now_);
    if (name == "older_make")
      return set(make(value("coords"), value("feats"), value("active"), view.triple("stride"))),
             true;
    if (name == "older_decompose") {
      const std::vector<Value> parts = decompose(value("x"));
      for (size_t i = 0; i < 3; ++i) values_[static_cast<size_t>(now_->results[i])] = parts[i];
      return true;
    }
    if (name == "older_generative") {
      const Value x = value("x");
      std::vector<Value> operands{x, kernel(false, view.triple("kernel_size"))};
      const int64_t channels = operands.back().channels;
      if (given("bias")) operands.push_back(vector("bias", true));
      std::vector<std::string> attributes = sizes(false, true);
      if (view.has("eps")) attributes.push_back(f32("eps", view.number("eps")));
      attributes.emplace_back("accumulation = \"canonical_f32\"");
      set(line(view.has("eps") ? "normalized_generative_conv_transpose3d"
                               : "generative_conv_transpose3d",
               operands, attributes, sparse(x.dtype, channels)));
      return true;
    }
    if (name == "older_embedding") {
      const mx::array& table = array("table");
      file_.arrays.insert_or_assign(reference("table").tensor, table);
      const Value w = weight(reference("table").tensor, "embedding", "embedding_n_c", "dense",
                             std::string(name_of(table.dtype())));
      set(line("embedding_lookup", {value("indices"), w}, {}, rows("f32", table.shape(1))));
      return true;
    }
    if (name == "older_elementwise" || name == "exp" || name == "softmax")
      return write_elementwise(name);
    if (name == "voxelize" || name == "older_devoxelize") return write_voxels(name), true;
    return false;
  }
  bool write_elementwise(const std::string& name) {
    const NodeView view(*now_);
    const std::string kind = name == "older_elementwise" ? view.text("kind") : name;
    const Value x = value(has("feats") ? "feats" : "a");
    if (x.dtype != "f32" || x.channels < 0) refuse("takes features of f32 here");
    if (name == "softmax") {
      const std::vector<int64_t>& axes = view.integers("axes");
      if (axes.size() != 1 || (axes[0] != 1 && axes[0] != -1)) refuse("has softmax over channels");
    }
    if (kind == "gelu_fast")
      set(activation(x, "gelu", "fast", 0.01, 1, 20));
    else if (kind == "softmax")
      set(line("softmax", {x}, {"axis = -1"}, rows("f32", x.channels)));
    else
      set(line("elementwise", {x}, {"kind = \"" + kind + "\""}, rows("f32", x.channels)));
    return true;
  }
  void write_voxels(const std::string& name) {
    const NodeView view(*now_);
    const auto numbers = [&](const char* key) {
      std::vector<std::string> made;
      for (const double v : view.numbers(key)) {
        char digits[64];
        const auto end =
            std::to_chars(digits, digits + sizeof(digits), v, std::chars_format::scientific).ptr;
        std::string text(digits, end);
        if (text.find('.') == std::string::npos) text.insert(text.find('e'), ".0");
        made.push_back(text);
      }
      return std::string(key) + " = array<f64: " + joined(made) + ">";
    };
    std::vector<std::string> attributes{numbers("voxel_size"), numbers("origin")};
    if (name == "voxelize") {
      if (!given("batch_indices") || !given("active_rows"))
        refuse("needs batch_indices and active_rows in voxelize");
      if (view.text("reduction") == "max") refuse("has no maximum in voxelize");
      attributes.push_back(word("reduction", "voxel_reduction", view.text("reduction")));
      attributes.push_back(triple("stride", view.triple("stride")));
      const Value feats = value("feats");
      set(line("voxelize", {value("points"), feats, value("batch_indices"), value("active_rows")},
               attributes, sparse("f32", feats.channels)));
      return;
    }
    attributes.push_back(word("interpolation", "point_interpolation", view.text("interpolation")));
    const Value voxels = value("voxels");
    set(line("devoxelize", {value("points"), voxels, value("batch_indices"), value("active")},
             attributes, rows(voxels.dtype, voxels.channels)));
  }

  const Loaded& program_;
  const Graph& graph_;
  const Node* now_ = nullptr;
  TensorFile file_;
  std::vector<Value> values_;  // by value of the graph
  std::vector<std::string> arguments_, input_names_, input_roles_;
  std::string body_;
  int count_ = 0;
};

}  // namespace

std::pair<std::string, TensorFile> write(const Loaded& program) { return Writer(program).run(); }

}  // namespace lattice::program::mlir
