// Makes a Loaded from a file or a graph: binds operands, packs weights, and checks the program by a
// dry run.
#include "lattice/program/loaded.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstdio>
#include <set>

#include "lattice/kernels/cpu/base/checksum.h"
#include "lattice/ops/quantize_file.h"
#include "lattice/program/executor.h"

namespace lattice::program {

namespace {

constexpr std::string_view kExample = "example.";

[[noreturn]] void refuse(const std::string& what, const std::string& argument,
                         ErrorCode code = ErrorCode::file) {
  throw Error(code, "[Program.load] " + what, "Program.load", argument);
}

std::string checksum(const std::string& text) {
  char digits[16];
  const auto* data = reinterpret_cast<const uint8_t*>(text.data());
  std::snprintf(digits, sizeof(digits), "%08x", cpu::crc32c({data, text.size()}));
  return digits;
}

std::string take_note(std::map<std::string, std::string>& notes, const char* key) {
  const auto found = notes.find(key);
  if (found == notes.end())
    refuse(std::string("the header has no \"") + key +
               "\"; this is no program. model.export(path, example=x) writes one",
           key);
  std::string value = found->second;
  notes.erase(found);
  return value;
}

// Whether a kind is among "array|sparse".
bool among(std::string_view kinds, std::string_view kind) {
  while (!kinds.empty()) {
    const size_t end = kinds.find('|');
    if (kinds.substr(0, end) == kind) return true;
    kinds.remove_prefix(end == std::string_view::npos ? kinds.size() : end + 1);
  }
  return false;
}

// Makes a Loaded of a graph and its tensors, step by step.
class Builder {
 public:
  Builder(Loaded& out) : out_(out), graph_(out.graph) {}

  void build() {
    find_kinds();
    out_.constants.assign(graph_.names.size(), {});
    for (size_t i = 0; i < graph_.nodes.size(); ++i) bind(i);
    check_unused();
    find_last_uses();
    find_prepared();
  }

  // Nodes that depend on tensors alone run now.
  void fold() {
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      if (is_constant(graph_.nodes[i])) fold_node(i);
  }

 private:
  void find_kinds() {
    for (const ProgramPort& input : graph_.inputs) kinds_.push_back(input.type.kind);
    for (const Node& node : graph_.nodes)
      for (size_t i = 0; i < node.results.size(); ++i)
        kinds_.push_back(has_many_results(*node.operation) ? "array" : node.operation->results[i]);
  }

  [[noreturn]] void wrong_operand(const Node& node, const Operand& operand,
                                  const std::string& found) const {
    refuse(NodeView(node).place() + ": `" + operand.name + "` must be " + operand.kind +
               ", found " + found,
           operand.name);
  }

  void bind(size_t index) {
    const Node& node = graph_.nodes[index];
    Loaded::Operands made;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Operand& operand = node.operation->operands[i];
      const Reference& given = node.operands[i];
      made.values.emplace_back();
      made.weights.push_back(nullptr);
      if (given.kind == Reference::Kind::list)
        for (const Reference& item : given.items)
          made.values.back().push_back(bind_item(node, operand, item));
      else if (std::string_view(operand.kind) == "weight")
        made.weights.back() = bind_weight(node, operand, given);
      else
        made.values.back().push_back(bind_item(node, operand, given));
    }
    out_.operands.push_back(std::move(made));
  }

  ProgramValue bind_item(const Node& node, const Operand& operand, const Reference& item) {
    switch (item.kind) {
      case Reference::Kind::value:
        if (const std::string& kind = kinds_[static_cast<size_t>(item.value)];
            !among(operand.kind, kind))
          wrong_operand(node, operand,
                        kind + " `" + graph_.names[static_cast<size_t>(item.value)] + "`");
        return {};
      case Reference::Kind::tensor: {
        const auto* dense = std::get_if<mx::array>(&tensor(node, item.tensor));
        if (!dense || !among(operand.kind, "array"))
          wrong_operand(node, operand,
                        (dense ? "the array \"" : "the packed weight \"") + item.tensor + "\"");
        return *dense;
      }
      case Reference::Kind::number:
        if (!among(operand.kind, "array")) wrong_operand(node, operand, "a number");
        return mx::array(static_cast<float>(item.number));
      default:
        return {};
    }
  }

  const Weight& tensor(const Node& node, const std::string& name) {
    const auto found = out_.tensors.find(name);
    if (found == out_.tensors.end())
      refuse(NodeView(node).place() + ": the file has no tensor \"" + name +
                 "\"; export the network again",
             name);
    used_.insert(name);
    return found->second;
  }

  // A dense weight is arranged for the CPU now and not in the first call.
  const Weight* bind_weight(const Node& node, const Operand& operand, const Reference& item) {
    if (item.kind != Reference::Kind::tensor)
      wrong_operand(node, operand, "something that is no tensor of the file");
    const Weight& weight = tensor(node, item.tensor);
    const auto* dense = std::get_if<mx::array>(&weight);
    if (!dense) return &weight;
    int64_t groups = 1;
    for (const Attribute& attribute : node.operation->attributes)
      if (std::string_view(attribute.name) == "groups") groups = NodeView(node).integer("groups");
    const auto key = std::make_pair(item.tensor, groups);
    const auto found = packed_.find(key);
    if (found != packed_.end()) return found->second;
    try {
      out_.owned.push_back(std::make_shared<const Weight>(pack_kernel(*dense, groups)));
    } catch (...) {
      rethrow_at("[Program.load] " + NodeView(node).place() + ": \"" + item.tensor + "\"",
                 node.operation->name);
    }
    return packed_[key] = out_.owned.back().get();
  }

  void check_unused() const {
    for (const auto& [name, value] : out_.tensors)
      if (!used_.contains(name))
        refuse("the graph does not read the tensor \"" + name + "\"; remove it from the file",
               name);
  }

  template <typename F>
  static void each_value(const Node& node, const F& f) {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      if (node.operands[i].kind == Reference::Kind::value) f(i, node.operands[i].value);
      for (const Reference& item : node.operands[i].items)
        if (item.kind == Reference::Kind::value) f(i, item.value);
    }
  }

  void find_last_uses() {
    out_.last_use.assign(graph_.names.size(), -1);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      each_value(graph_.nodes[i], [&](size_t, int value) {
        out_.last_use[static_cast<size_t>(value)] = static_cast<int>(i);
      });
  }

  // A node that reads weights cannot be prepared, unless it reads coordinates only.
  void find_prepared() {
    std::vector<bool> weighted(graph_.names.size(), false);
    for (const Node& node : graph_.nodes) {
      const Phase phase = node.operation->phase;
      const bool geometry = phase == Phase::geometry || phase == Phase::voxelize;
      bool reads = false;
      for (const Reference& operand : node.operands)
        reads |= operand.kind == Reference::Kind::tensor ||
                 std::any_of(operand.items.begin(), operand.items.end(),
                             [](const Reference& r) { return r.kind == Reference::Kind::tensor; });
      each_value(node, [&](size_t, int value) {
        const bool coordinates = geometry && kinds_[static_cast<size_t>(value)] == "sparse";
        reads |= weighted[static_cast<size_t>(value)] && !coordinates;
      });
      out_.prepared.push_back(!reads && (geometry || phase == Phase::decision));
      for (const int value : node.results) weighted[static_cast<size_t>(value)] = reads;
    }
  }

  bool is_constant(const Node& node) const {
    if (node.operands.empty() || node.operation->phase != Phase::features) return false;
    for (const int value : node.results)
      if (kinds_[static_cast<size_t>(value)] != "array") return false;
    for (const Operand& operand : node.operation->operands)
      if (!among(operand.kind, "array") && std::string_view(operand.kind) != "weight") return false;
    bool constant = true;
    each_value(node, [&](size_t, int value) {
      constant &=
          !std::holds_alternative<std::monostate>(out_.constants[static_cast<size_t>(value)]);
    });
    return constant;
  }

  void fold_node(size_t index);

  Loaded& out_;
  Graph& graph_;
  std::vector<std::string> kinds_;
  std::set<std::string> used_;
  std::map<std::pair<std::string, int64_t>, const Weight*> packed_;
};

void Builder::fold_node(size_t index) {
  const Node& node = graph_.nodes[index];
  const auto results = run_node(out_, index, out_.constants);
  std::vector<mx::array> arrays;
  for (const ProgramValue& value : results) append_arrays(value, arrays);
  mx::eval(arrays);
  for (size_t i = 0; i < node.results.size() && i < results.size(); ++i)
    out_.constants[static_cast<size_t>(node.results[i])] = results[i];
}

}  // namespace

std::shared_ptr<const Loaded> load_graph(Graph graph, std::map<std::string, Weight> tensors,
                                         std::map<std::string, std::string> notes,
                                         const std::optional<std::vector<ProgramValues>>& trials) {
  auto made = std::make_shared<Loaded>();
  made->text = print_graph(graph);
  made->graph = std::move(graph);
  made->tensors = std::move(tensors);
  made->notes = std::move(notes);
  Builder builder(*made);
  builder.build();
  builder.fold();
  const auto& inputs = made->graph.inputs;
  dry_run(made, trials ? *trials : std::vector{few_rows(inputs, false), few_rows(inputs, true)});
  return made;
}

std::shared_ptr<const Loaded> load_program(TensorFile file) {
  if (const std::string format = take_note(file.notes, "format"); format != "lattice-program")
    refuse("\"format\" must be \"lattice-program\", found \"" + format + "\"", "format");
  if (const std::string version = take_note(file.notes, "version"); version != "1")
    refuse("\"version\" must be \"1\", found \"" + version + "\"; a newer mlx-lattice reads it",
           "version", ErrorCode::version);
  const std::string text = take_note(file.notes, "graph");
  if (const std::string sum = take_note(file.notes, "graph_crc32c"); sum != checksum(text))
    refuse("the graph was changed or damaged: its checksum is " + checksum(text) +
               ", the header says " + sum,
           "graph_crc32c");
  TensorFile example;
  std::unordered_map<std::string, mx::array> arrays;
  std::unordered_map<std::string, std::string> forms;
  for (auto& [name, value] : file.arrays) {
    if (name.starts_with(kExample))
      example.arrays.emplace(name.substr(kExample.size()), value);
    else
      arrays.emplace(name, value);
  }
  for (auto at = file.notes.begin(); at != file.notes.end();) {
    const bool form = at->first.ends_with(".weight");
    if (form) forms.emplace(at->first, at->second);
    at = form ? file.notes.erase(at) : std::next(at);
  }
  std::map<std::string, Weight> tensors;
  try {
    tensors = join_weights(std::move(arrays), forms, "the file");
  } catch (...) {
    rethrow_at("[Program.load] tensors", "Program.load");
  }
  auto made = std::const_pointer_cast<Loaded>(
      load_graph(parse_graph(text), std::move(tensors), std::move(file.notes)));
  made->example = std::move(example);
  return made;
}

TensorFile program_file(const std::string& graph, std::map<std::string, mx::array> tensors,
                        std::map<std::string, std::string> notes) {
  const std::string text = print_graph(parse_graph(graph));
  notes["format"] = "lattice-program";
  notes["version"] = "1";
  notes["graph"] = text;
  notes["graph_crc32c"] = checksum(text);
  return {std::move(tensors), std::move(notes)};
}

}  // namespace lattice::program
