#include "lattice/program/mlir_lower.h"

#include <mlx/ops.h>

#include <algorithm>
#include <set>

#include "lattice/core/arrays.h"
#include "lattice/graph/dtype.h"
#include "lattice/ops/quantize.h"
#include "lattice/program/mlir_error.h"

namespace lattice::program::mlir {
namespace {

using Operands = std::vector<std::pair<const char*, Reference>>;
using Given = std::vector<std::pair<const char*, AttributeValue>>;

Reference tensor(const std::string& name) {
  Reference made;
  made.kind = Reference::Kind::tensor;
  made.tensor = name;
  return made;
}

// A name that the text of a graph can hold.
std::string plain_name(const std::string& name) {
  std::string made;
  for (const char c : name) made += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return made.empty() || std::isdigit(static_cast<unsigned char>(made[0])) ? "v" + made : made;
}

class Lowering {
 public:
  Lowering(const Module& module, const Arrays& weights)
      : module_(module),
        weights_(weights),
        values_(module.types.size(), -1),
        channels_(module.types.size(), -1),
        definitions_(module.types.size(), nullptr) {}

  std::pair<Graph, Tensors> run() {
    const std::vector<std::string>& names = module_.attributes.at("lattice.input_names").strings;
    for (int i = 0; i < module_.arguments; ++i) {
      const Type& type = module_.types[i];
      const auto dtype = dtype_named(type.dtype);
      if (!dtype) fail_at(1, "inputs of the dtype " + type.dtype + " are not read");
      graph_.inputs.push_back({names[i], {"array", *dtype, type.shape}});
      graph_.input_lines.push_back(1);
      values_[i] = new_value(names[i]);
      if (type.shape.size() == 2) channels_[i] = type.shape[1];
    }
    for (const Operation& operation : module_.operations) lower(operation);
    const std::vector<std::string>& outputs = module_.attributes.at("lattice.output_names").strings;
    for (size_t i = 0; i < outputs.size(); ++i) {
      graph_.outputs.emplace_back(outputs[i], values_[module_.outputs[i]]);
      graph_.output_lines.push_back(module_.return_line);
    }
    return {std::move(graph_), std::move(tensors_)};
  }

 private:
  int new_value(const std::string& wanted) {
    std::string name = plain_name(wanted);
    while (!names_.insert(name).second) name += "_";
    graph_.names.push_back(name);
    return static_cast<int>(graph_.names.size()) - 1;
  }

  Reference value(int number) const {
    Reference made;
    made.kind = Reference::Kind::value;
    made.value = values_[number];
    return made;
  }

  const Attribute& attribute(const char* name) const { return now_->attributes.at(name); }
  AttributeValue integers(const char* name) const { return attribute(name).integers; }
  AttributeValue numbers(const char* name) const { return attribute(name).reals; }
  // As float32, which the text names.
  AttributeValue number(const char* name) const {
    return static_cast<double>(static_cast<float>(attribute(name).real));
  }
  AttributeValue word(const char* name) const { return attribute(name).text; }
  int operand(size_t i) const { return now_->operands[i]; }

  // A node of the operation `name`, version 1; what is not given is absent.
  void add(const char* name, const Operands& operands, const Given& attributes) {
    Node node;
    node.operation = find_operation(name, 1);
    node.line = now_->line;
    if (!node.operation)
      throw Error(ErrorCode::internal, "[Program.load] no operation " + std::string(name));
    for (const Operand& wanted : node.operation->operands) {
      const auto found = std::find_if(operands.begin(), operands.end(), [&](const auto& o) {
        return std::string_view(o.first) == wanted.name;
      });
      Reference given = found == operands.end() ? Reference() : found->second;
      if (wanted.form == Operand::Form::list && given.kind != Reference::Kind::list) {
        Reference list;
        list.kind = Reference::Kind::list;
        for (const auto& [key, item] : operands)
          if (std::string_view(key) == wanted.name) list.items.push_back(item);
        given = list;
      }
      node.operands.push_back(given);
    }
    for (const program::Attribute& wanted : node.operation->attributes) {
      const auto found = std::find_if(attributes.begin(), attributes.end(), [&](const auto& a) {
        return std::string_view(a.first) == wanted.name;
      });
      node.attributes.push_back(found == attributes.end() ? AttributeValue() : found->second);
      check_range(wanted, node.attributes.back());
    }
    for (const int result : now_->results)
      node.results.push_back(values_[result] = new_value(module_.names[result]));
    graph_.nodes.push_back(std::move(node));
  }

  void check_range(const program::Attribute& wanted, const AttributeValue& given) const {
    const auto check = [&](int64_t value) {
      if (value < wanted.least || value > wanted.most)
        wrong(std::string(wanted.name) + " must be in " + std::to_string(wanted.least) + ".." +
              std::to_string(wanted.most) + ", found " + std::to_string(value));
    };
    if (const auto* one = std::get_if<int64_t>(&given)) check(*one);
    if (const auto* list = std::get_if<std::vector<int64_t>>(&given))
      for (const int64_t value : *list) check(value);
  }

  void lower(const Operation& operation) {
    now_ = &operation;
    const std::string& name = operation.name;
    if (name == "weight")
      definitions_[operation.results[0]] = &operation;
    else if (name.find("conv") != std::string::npos)
      convolution(name);
    else if (name.starts_with("sparse."))
      sparse(name);
    else if (name.find("pool") != std::string::npos || name == "trilinear_upsample3d")
      pool(name);
    else if (name.find("voxelize") != std::string::npos)
      voxels(name);
    else
      rows(name);
  }

  void convolution(std::string name) {
    const bool onto = name.starts_with("target_");
    if (onto) name = name.substr(7);
    // In the older package a 1x1x1 kernel is not normalized; older_generative knows it, too.
    const std::vector<int64_t>& size = attribute("kernel_size").integers;
    if (name.starts_with("normalized") && size == std::vector<int64_t>{1, 1, 1})
      name = name.substr(11);
    const size_t weight = onto ? 2 : 1;
    Operands operands{{"x", value(operand(0))}};
    if (onto) operands.emplace_back("coordinates", value(operand(1)));
    const bool generative = name.find("generative") != std::string::npos;
    operands.emplace_back("weight", tensor(kernel(operand(weight), operand(0),
                                                  generative || name.starts_with("normalized"))));
    if (now_->operands.size() > weight + 1)
      operands.emplace_back("bias", tensor(dense(operand(weight + 1), {last_outputs_})));
    Given given{{"kernel_size", integers("kernel_size")}, {"groups", int64_t{1}}};
    for (const char* optional : {"stride", "padding", "dilation"})
      if (now_->attributes.contains(optional)) given.emplace_back(optional, integers(optional));
    if (now_->attributes.contains("eps")) given.emplace_back("eps", number("eps"));
    add(generative ? "older_generative" : name.c_str(), operands, given);
    channels_[now_->results[0]] = last_outputs_;
  }

  void sparse(const std::string& name) {
    const int result = now_->results[0];
    if (name == "sparse.make") {
      add("older_make",
          {{"coords", value(operand(0))},
           {"feats", value(operand(1))},
           {"active", value(operand(2))}},
          {{"stride", integers("stride")}});
      channels_[result] = channels_[operand(1)];
    } else if (name == "sparse.decompose") {
      add("older_decompose", {{"x", value(operand(0))}}, {});
      channels_[now_->results[1]] = channels_[operand(0)];
    } else if (name == "sparse.with_features") {
      add("with_feats", {{"x", value(operand(0))}, {"feats", value(operand(1))}}, {});
      channels_[result] = channels_[operand(1)];
    } else if (name == "sparse.reindex") {
      add("reindex_sparse", {{"x", value(operand(0))}, {"target", value(operand(1))}},
          {{"fill", number("fill")}});
      channels_[result] = channels_[operand(0)];
    } else {
      const int64_t left = channels_[operand(0)], right = channels_[operand(1)];
      const bool cat = name == "sparse.cat";
      Given given{{"join", word("join")}, {"lhs_fill", 0.0}, {"rhs_fill", 0.0}};
      if (!cat)
        given = {{"join", word("join")},
                 {"op", word("op")},
                 {"lhs_fill", number("lhs_fill")},
                 {"rhs_fill", number("rhs_fill")}};
      add(cat ? "sparse_cat_aligned" : "sparse_binary",
          {{"lhs", value(operand(0))}, {"rhs", value(operand(1))}}, given);
      channels_[result] = !cat ? left : left < 0 || right < 0 ? -1 : left + right;
    }
  }

  void pool(const std::string& name) {
    channels_[now_->results[0]] = channels_[operand(0)];
    Operands operands{{"x", value(operand(0))}};
    if (now_->operands.size() > 1) operands.emplace_back("target", value(operand(1)));
    Given given;
    for (const char* key : {"kernel_size", "stride", "padding", "dilation"})
      if (now_->attributes.contains(key)) given.emplace_back(key, integers(key));
    if (name == "pool3d" && attribute("mode").text == "max") {
      add("older_max_pool", operands, given);
      return;
    }
    if (now_->attributes.contains("mode")) given.emplace_back("mode", word("mode"));
    if (name == "global_pool" && attribute("batch_size").integer >= 0)
      given.emplace_back("batch_size", attribute("batch_size").integer);
    add(name.c_str(), operands, given);
  }

  void voxels(const std::string& name) {
    const bool back = name == "devoxelize";
    Given given{{"voxel_size", numbers("voxel_size")}, {"origin", numbers("origin")}};
    Operands operands{{"points", value(operand(0))},
                      {back ? "voxels" : "feats", value(operand(1))},
                      {"batch_indices", value(operand(2))},
                      {back ? "active" : "active_rows", value(operand(3))}};
    if (back) {
      given.emplace_back("interpolation", word("interpolation"));
    } else {
      given.emplace_back("reduction", word("reduction"));
      given.emplace_back("stride", integers("stride"));
    }
    add(back ? "older_devoxelize" : "voxelize", operands, given);
    channels_[now_->results[0]] = channels_[operand(1)];
  }

  void rows(const std::string& name) {
    const int64_t c = channels_[now_->results[0]] = channels_[operand(0)];
    const auto weight = [&](size_t i) { return tensor(dense(operand(i), {c})); };
    if (name == "linear") {
      Operands operands{{"feats", value(operand(0))}};
      operands.emplace_back("weight", tensor(kernel(operand(1), operand(0), false)));
      if (now_->operands.size() > 2)
        operands.emplace_back("bias", tensor(dense(operand(2), {last_outputs_})));
      add("linear_features", operands, {});
      channels_[now_->results[0]] = last_outputs_;
    } else if (name == "embedding_lookup") {
      const std::string table = dense(operand(1), {-1, -1});
      channels_[now_->results[0]] = std::get<mx::array>(tensors_.at(table)).shape(1);
      add("older_embedding", {{"indices", value(operand(0))}, {"table", tensor(table)}}, {});
    } else if (name == "batch_norm") {
      add("batch_norm_features",
          {{"feats", value(operand(0))},
           {"weight", weight(1)},
           {"bias", weight(2)},
           {"mean", weight(3)},
           {"var", weight(4)}},
          {{"eps", number("eps")}});
    } else if (name == "layer_norm") {
      add("layer_norm_features",
          {{"feats", value(operand(0))}, {"weight", weight(1)}, {"bias", weight(2)}},
          {{"eps", number("eps")}});
    } else if (name == "rms_norm") {
      add("rms_norm_features", {{"feats", value(operand(0))}, {"weight", weight(1)}},
          {{"eps", number("eps")}});
    } else if (name == "activation") {
      activation();
    } else {
      const AttributeValue kind = name == "softmax" ? std::string("softmax") : word("kind");
      add("older_elementwise", {{"feats", value(operand(0))}}, {{"kind", kind}});
    }
  }

  void activation() {
    const std::string &kind = attribute("kind").text, &how = attribute("approximate").text;
    if (kind == "gelu" && how == "fast") {
      add("older_elementwise", {{"feats", value(operand(0))}},
          {{"kind", std::string("gelu_fast")}});
      return;
    }
    add("activation", {{"array", value(operand(0))}},
        {{"kind", kind},
         {"approximate", how == "tanh"},
         {"negative_slope", number("alpha")},
         {"beta", number("beta")},
         {"threshold", number("threshold")}});
  }

  [[noreturn]] void wrong(const std::string& what) const {
    fail_at(now_->line, "lattice." + now_->name + ": " + what, now_->name);
  }
  const mx::array& stored(const std::string& key) const {
    const auto found = weights_.find(key);
    if (found == weights_.end())
      wrong("the weight \"" + key +
            "\" is not in weights.safetensors; write it into the file, or "
            "correct storage_key");
    return found->second;
  }
  const std::string& key_of(int weight) const {
    return definitions_[weight]->attributes.at("storage_key").text;
  }
  const Attribute& packing_of(int weight) const {
    return definitions_[weight]->attributes.at("packing");
  }

  // A weight that is not packed, of this shape; -1 fits every size.
  std::string dense(int weight, const std::vector<int64_t>& shape) {
    const std::string& key = key_of(weight);
    const mx::array& found = stored(key);
    bool fits = found.ndim() == shape.size() && lattice::is_float(found.dtype());
    for (size_t i = 0; fits && i < shape.size(); ++i)
      fits = shape[i] < 0 || found.shape(static_cast<int>(i)) == shape[i];
    if (!fits) {
      mx::Shape expected;
      for (const int64_t size : shape) expected.push_back(static_cast<int>(size));
      wrong("the weight \"" + key + "\" has " + graph::dtype_name(found.dtype()) + " " +
            shape_text(found.shape()) + ", expected floats " + shape_text(expected) +
            " (-1: any size)");
    }
    tensors_.insert_or_assign(key, Weight(found));
    return key;
  }

  // The kernel of a convolution, or the matrix of a linear layer; `x` is what it is applied to.
  // Keeps the number of output channels in last_outputs_. With must_be_dense, packed weights are
  // unpacked here.
  std::string kernel(int weight, int x, bool must_be_dense) {
    const bool linear = now_->name == "linear";
    std::vector<int64_t> shape{-1};
    if (!linear) {
      const std::vector<int64_t>& size = attribute("kernel_size").integers;
      shape.insert(shape.end(), size.begin(), size.end());
      if (size[0] > 1024 || size[1] > 1024 || size[2] > 1024 || size[0] * size[1] * size[2] > 32768)
        wrong("kernel_size must have at most 32768 offsets");
    }
    shape.push_back(channels_[x]);
    if (packing_of(weight).text != "dense") return packed(weight, x, shape, must_be_dense);
    const std::string name = dense(weight, shape);
    const mx::array& array = std::get<mx::array>(tensors_.at(name));
    const auto dtype = dtype_named(module_.types[x].dtype);
    if (dtype && array.dtype() != *dtype)
      wrong("the weight \"" + name + "\" is " + graph::dtype_name(array.dtype()) +
            ", and the features are " + graph::dtype_name(*dtype) + "; convert the weight");
    last_outputs_ = array.shape(0);
    return name;
  }

  std::string packed(int weight, int x, const std::vector<int64_t>& shape, bool must_be_dense) {
    const std::string& key = key_of(weight);
    const Attribute& packing = packing_of(weight);
    const mx::array &codes = stored(key + ".weight"), &scales = stored(key + ".scales"),
                    &biases = stored(key + ".biases");
    const mx::Dtype named = packing.fields.at("scale_dtype") == "f16" ? mx::float16 : mx::float32;
    for (const mx::array* part : {&scales, &biases})
      if (part->dtype() != named)
        wrong("the scales of \"" + key + "\" are " + graph::dtype_name(part->dtype()) +
              ", and the text says " + packing.fields.at("scale_dtype"));
    if (codes.ndim() != 3)
      wrong("the codes of \"" + key + "\" must have three axes, got " + shape_text(codes.shape()));
    const Triple size = shape.size() == 5 ? Triple{shape[1], shape[2], shape[3]} : Triple{1, 1, 1};
    const bool one = size[0] * size[1] * size[2] == 1;
    const int64_t bits = packing.text == "int4" ? 4 : 8;
    const int64_t words = codes.shape(one ? 2 : 1);
    // Features are cast to the dtype of the scales in the older package; ours have one dtype.
    const mx::Dtype dtype = dtype_named(module_.types[x].dtype).value_or(mx::float32);
    try {
      const QuantizedWeight made(
          {codes, mx::astype(scales, dtype), mx::astype(biases, dtype),
           std::stoll(packing.fields.at("group_size")), bits,
           shape.back() < 0 ? words * 32 / bits : shape.back(), codes.shape(one ? 1 : 2), size,
           shape.size() == 5 ? WeightLayout::dense_5d : WeightLayout::linear});
      last_outputs_ = made.out_channels();
      const std::string name = key + (must_be_dense ? ".dense" : ".weight");
      tensors_.insert_or_assign(name,
                                must_be_dense ? Weight(dequantize_weight(made)) : Weight(made));
      return name;
    } catch (const std::invalid_argument& error) {
      wrong("the packed weight \"" + key + "\" does not fit: " + error.what());
    }
  }

  const Module& module_;
  const Arrays& weights_;
  Graph graph_;
  Tensors tensors_;
  std::set<std::string> names_;
  std::vector<int> values_;                    // by value of the module: value of the graph
  std::vector<int64_t> channels_;              // by value of the module; -1: unknown
  std::vector<const Operation*> definitions_;  // of weights, by value of the module
  const Operation* now_ = nullptr;
  int64_t last_outputs_ = -1;
};

}  // namespace

std::pair<Graph, Tensors> lower(const Module& module, const Arrays& weights) {
  return Lowering(module, weights).run();
}

}  // namespace lattice::program::mlir
