#include "lattice/program/executor.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <set>

#include "lattice/core/errors.h"

namespace lattice::program {

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds(Clock::time_point since) {
  return std::chrono::duration<double, std::milli>(Clock::now() - since).count();
}

int64_t rows_of(const ProgramValue& value) {
  if (const auto* array = std::get_if<mx::array>(&value))
    return array->ndim() ? array->shape(0) : 0;
  if (const auto* tensor = std::get_if<SparseTensor>(&value)) return tensor->capacity();
  return 0;
}

int64_t bytes_of(const ProgramValue& value) {
  if (const auto* array = std::get_if<mx::array>(&value))
    return static_cast<int64_t>(array->nbytes());
  if (const auto* tensor = std::get_if<SparseTensor>(&value))
    return static_cast<int64_t>(tensor->feats().nbytes());
  return 0;
}

bool has_value(const ProgramValue& value) { return !std::holds_alternative<std::monostate>(value); }

// The operands of a node: values of the frame, tensors and numbers.
class Collected {
 public:
  Collected(const Node& node, const Loaded::Operands& given,
            const std::vector<ProgramValue>& values)
      : all(node.operands.size()), values_(values) {
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Reference& operand = node.operands[i];
      if (operand.kind != Reference::Kind::list && !given.values[i].empty())
        add(operand, given.values[i][0], all[i]);
      for (size_t item = 0; item < operand.items.size(); ++item)
        add(operand.items[item], given.values[i][item], all[i]);
    }
    if (!numbers_.empty()) set_dtypes();
  }

  Call::Values all;

 private:
  void add(const Reference& item, const ProgramValue& ready,
           std::vector<const ProgramValue*>& out) {
    if (item.kind == Reference::Kind::value) {
      out.push_back(&values_[static_cast<size_t>(item.value)]);
    } else if (item.kind == Reference::Kind::number) {
      numbers_.push_back(std::make_unique<ProgramValue>(ready));
      exact_.push_back(item.number);
      out.push_back(numbers_.back().get());
    } else if (has_value(ready)) {
      out.push_back(&ready);
    }
  }

  // A number has the dtype of the first array beside it, as in MLX.
  void set_dtypes() {
    for (const auto& operand : all)
      for (const ProgramValue* value : operand) {
        const auto* array = std::get_if<mx::array>(value);
        const bool number = std::any_of(numbers_.begin(), numbers_.end(),
                                        [&](const auto& n) { return n.get() == value; });
        if (!array || number || array->dtype() == mx::bool_) continue;
        for (size_t i = 0; i < numbers_.size(); ++i)
          *numbers_[i] = mx::issubdtype(array->dtype(), mx::integer)
                             ? mx::array(static_cast<int64_t>(exact_[i]), array->dtype())
                             : mx::array(static_cast<float>(exact_[i]), array->dtype());
        return;
      }
  }

  const std::vector<ProgramValue>& values_;
  std::vector<std::unique_ptr<ProgramValue>> numbers_;
  std::vector<double> exact_;
};

// One run: values by number, and their sizes in bytes.
class Runner {
 public:
  Runner(const Frame& frame, const Execution& execution)
      : program_(*frame.program), execution_(execution), values_(frame.values) {
    kept_.assign(values_.size(), false);
    for (const auto& [name, value] : program_.graph.outputs)
      kept_[static_cast<size_t>(value)] = true;
    if (execution.keep)
      for (const int value : *execution.keep) kept_[static_cast<size_t>(value)] = true;
    for (size_t i = 0; i < program_.graph.inputs.size(); ++i)
      most_rows_ = std::max(most_rows_, rows_of(values_[i]));
    for (const ProgramValue& value : values_) add(value);
  }

  std::vector<ProgramValue> run() {
    if (const int64_t most = execution_.limits.max_bytes; most > 0 && bytes_ > most)
      throw Error(ErrorCode::limit,
                  "[Program] the inputs need " + std::to_string(bytes_) +
                      " bytes, the limit max_bytes is " + std::to_string(most),
                  "Program.run", "max_bytes");
    for (size_t i = 0; i < program_.graph.nodes.size(); ++i) {
      const Node& node = program_.graph.nodes[i];
      if (node.results.empty() || known(node)) continue;
      if (execution_.prepare_only && !can_prepare(node)) continue;
      run_node(i);
      free_behind(i);
    }
    return std::move(values_);
  }

 private:
  bool known(const Node& node) const {
    return has_value(values_[static_cast<size_t>(node.results[0])]);
  }
  // In a preparation a node runs if its operands are there; one that reads features must not have
  // weights above it, which Loaded::prepared says.
  bool can_prepare(const Node& node) const {
    const auto index = static_cast<size_t>(&node - program_.graph.nodes.data());
    if (!program_.prepared[index] && node.operation->phase == Phase::decision) return false;
    for (const Reference& operand : node.operands)
      if (!is_there(operand)) return false;
    return true;
  }
  bool is_there(const Reference& operand) const {
    if (operand.kind == Reference::Kind::value)
      return has_value(values_[static_cast<size_t>(operand.value)]);
    return std::all_of(operand.items.begin(), operand.items.end(),
                       [&](const Reference& item) { return is_there(item); });
  }

  void run_node(size_t index) {
    const Node& node = program_.graph.nodes[index];
    const Phase phase = node.operation->phase;
    if (phase == Phase::points && !execution_.prepare_only && !computed_) compute_features();
    if (phase == Phase::decision && execution_.without_values) forget_values(node);
    const auto began = Clock::now();
    std::vector<ProgramValue> results = program::run_node(program_, index, values_);
    ProgramStats& stats = execution_.stats;
    (phase == Phase::voxelize ? stats.voxelize : stats.geometry) += milliseconds(began);
    const NodeView view(node);
    if (results.size() != node.results.size())
      throw Error(ErrorCode::argument,
                  "[Program] " + view.place() + " gave " + std::to_string(results.size()) +
                      " values, expected " + std::to_string(node.results.size()),
                  node.operation->name);
    for (size_t i = 0; i < results.size(); ++i) {
      check_rows(view, results[i]);
      count_level(results[i]);
      add(results[i]);
      values_[static_cast<size_t>(node.results[i])] = std::move(results[i]);
    }
    check_bytes(view);
  }

  // Rows are numbers that something before has decided, and stay.
  void forget_values(const Node& node) {
    for (const Reference& operand : node.operands) {
      if (operand.kind != Reference::Kind::value) continue;
      auto* array = std::get_if<mx::array>(&values_[static_cast<size_t>(operand.value)]);
      if (array && (array->dtype() == mx::bool_ || mx::issubdtype(array->dtype(), mx::floating)))
        *array = mx::zeros(array->shape(), array->dtype(), mx::Device::cpu);
    }
  }

  void check_rows(const NodeView& view, const ProgramValue& value) const {
    const int64_t most = execution_.limits.max_rows;
    if (most > 0 && rows_of(value) > most)
      throw Error(ErrorCode::limit,
                  "[Program] " + view.place() + " has " + std::to_string(rows_of(value)) +
                      " rows, the limit max_rows is " + std::to_string(most),
                  view.node().operation->name, "max_rows");
  }

  void check_bytes(const NodeView& view) const {
    const int64_t most = execution_.limits.max_bytes;
    if (most > 0 && bytes_ > most)
      throw Error(ErrorCode::limit,
                  "[Program] " + view.place() + " needs " + std::to_string(bytes_) +
                      " bytes, the limit max_bytes is " + std::to_string(most),
                  view.node().operation->name, "max_bytes");
  }

  void count_level(const ProgramValue& value) {
    const auto* tensor = std::get_if<SparseTensor>(&value);
    if (tensor && levels_.insert(tensor->coords().id()).second)
      execution_.stats.rows.push_back(tensor->capacity());
  }

  // With bound_rows: the bytes of a row times the rows that there may be.
  int64_t weight_of(const ProgramValue& value) const {
    const int64_t rows = rows_of(value), bytes = bytes_of(value);
    if (execution_.bound_rows == 0 || rows == 0) return bytes;
    return bytes / rows * execution_.bound_rows * ((rows + most_rows_ - 1) / most_rows_);
  }

  void add(const ProgramValue& value) {
    bytes_ += weight_of(value);
    execution_.stats.bytes = std::max(execution_.stats.bytes, bytes_);
  }

  void free_behind(size_t index) {
    const auto drop = [&](int value) {
      const auto at = static_cast<size_t>(value);
      if (kept_[at] || program_.last_use[at] > static_cast<int>(index)) return;
      if (execution_.prepare_only) return;
      bytes_ -= weight_of(values_[at]);
      values_[at] = {};
    };
    const Node& node = program_.graph.nodes[index];
    for (const Reference& operand : node.operands) {
      if (operand.kind == Reference::Kind::value) drop(operand.value);
      for (const Reference& item : operand.items)
        if (item.kind == Reference::Kind::value) drop(item.value);
    }
    for (const int value : node.results) drop(value);
  }

  // The features so far, so that the time of what follows is that of the way back onto points.
  void compute_features() {
    computed_ = true;
    std::vector<mx::array> arrays;
    for (const ProgramValue& value : values_) append_arrays(value, arrays);
    const auto began = Clock::now();
    mx::eval(arrays);
    execution_.stats.features += milliseconds(began);
  }

  const Loaded& program_;
  const Execution& execution_;
  std::vector<ProgramValue> values_;
  std::vector<bool> kept_;
  std::set<std::uintptr_t> levels_;
  int64_t bytes_ = 0, most_rows_ = 1;
  bool computed_ = false;
};

void check_input(const ProgramPort& port, const ProgramValue& value, const ProgramLimits& limits) {
  const auto wrong = [&](const std::string& what) {
    throw Error(ErrorCode::argument, "[Program.run] input `" + port.name + "` " + what,
                "Program.run", port.name);
  };
  const auto* array = std::get_if<mx::array>(&value);
  const auto* tensor = std::get_if<SparseTensor>(&value);
  if (port.type.kind == "sparse" ? !tensor : !array)
    wrong("must be " + type_text(port.type) + ", found " +
          (tensor  ? "a sparse tensor"
           : array ? "an array"
                   : "something else"));
  const mx::array& data = tensor ? tensor->feats() : *array;
  ProgramType found{port.type.kind, data.dtype(), {}, {1, 1, 1}, port.type.lengths_of};
  for (const int n : data.shape()) found.shape.push_back(n);
  if (tensor) found.stride = tensor->stride();
  bool fits = found.dtype == port.type.dtype && found.shape.size() == port.type.shape.size() &&
              found.stride == port.type.stride;
  for (size_t i = 0; fits && i < found.shape.size(); ++i)
    fits = port.type.shape[i] < 0 || port.type.shape[i] == found.shape[i];
  if (!fits) wrong("must be " + type_text(port.type) + ", found " + type_text(found));
  if (limits.max_points > 0 && rows_of(value) > limits.max_points)
    throw Error(ErrorCode::limit,
                "[Program.run] input `" + port.name + "` has " + std::to_string(rows_of(value)) +
                    " rows, the limit max_points is " + std::to_string(limits.max_points) +
                    "; raise it or give a smaller cloud",
                "Program.run", "max_points");
}

}  // namespace

void append_arrays(const ProgramValue& value, std::vector<mx::array>& arrays) {
  if (const auto* array = std::get_if<mx::array>(&value)) arrays.push_back(*array);
  if (const auto* tensor = std::get_if<SparseTensor>(&value)) arrays.push_back(tensor->feats());
}

void rethrow_at(const std::string& place, const char* operation) {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::memory, place + ": there is not enough memory", operation);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::argument, place + ": " + error.what(), operation);
  }
}

std::vector<ProgramValue> run_node(const Loaded& program, size_t index,
                                   const std::vector<ProgramValue>& values) {
  const Node& node = program.graph.nodes[index];
  const Loaded::Operands& given = program.operands[index];
  Collected collected(node, given, values);
  const Call call(node, std::move(collected.all), given.weights);
  try {
    return node.operation->run(call);
  } catch (const Error&) {
    throw;
  } catch (...) {
    rethrow_at("[Program] " + call.place(), node.operation->name);
  }
}

Frame frame_of(const std::shared_ptr<const Loaded>& program, const ProgramValues& inputs,
               const ProgramLimits& limits) {
  Frame frame{program, program->constants, 0, 0};
  const auto& ports = program->graph.inputs;
  for (const auto& [name, value] : inputs) {
    const auto same = [&, &key = name](const ProgramPort& port) { return port.name == key; };
    if (std::none_of(ports.begin(), ports.end(), same)) {
      std::string known;
      for (const ProgramPort& port : ports)
        known += (known.empty() ? "`" : ", `") + port.name + "`";
      throw Error(ErrorCode::argument,
                  "[Program.run] there is no input `" + name + "`; the inputs are " + known,
                  "Program.run", name);
    }
  }
  for (size_t i = 0; i < ports.size(); ++i) {
    const auto found = inputs.find(ports[i].name);
    if (found == inputs.end())
      throw Error(ErrorCode::argument,
                  "[Program.run] input `" + ports[i].name + "` is missing; it is " +
                      type_text(ports[i].type),
                  "Program.run", ports[i].name);
    check_input(ports[i], found->second, limits);
    frame.values[i] = found->second;
  }
  return frame;
}

int64_t memory_bound(const std::shared_ptr<const Loaded>& program, int64_t rows) {
  const ProgramLimits none;
  ProgramStats stats;
  const Frame frame = frame_of(program, few_rows(program->graph.inputs, true), none);
  execute(frame, {none, stats, false, nullptr, true, rows});
  return stats.bytes;
}

std::vector<ProgramValue> execute(const Frame& frame, const Execution& execution) {
  return Runner(frame, execution).run();
}

}  // namespace lattice::program
