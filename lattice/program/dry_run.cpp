// Checks a program when it is loaded. The program runs on a few rows, and every operation checks
// its arguments against the weights. Only what the geometry needs is computed.
#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/program/executor.h"

namespace lattice::program {

namespace {

SparseTensor few_voxels(const ProgramType& type, bool more) {
  const std::vector<int32_t> one{0, 0, 0, 0, 0, 1, 0, 0};
  const std::vector<int32_t> two{0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0};
  const std::vector<int32_t>& coords = more ? two : one;
  const int rows = more ? 5 : 2;
  const mx::array feats =
      mx::zeros({rows, static_cast<int>(type.shape[1])}, type.dtype, mx::Device::cpu);
  const BatchCounts counts = more ? BatchCounts{3, 2} : BatchCounts{2};
  return {new_array(coords.data(), {rows, 4}, mx::int32),
          feats,
          type.stride,
          std::nullopt,
          nullptr,
          counts};
}

// Rows 0, 1, 2, ... in every column, so that points differ; sizes that are not known are the rows.
mx::array few_values(const ProgramType& type, bool more) {
  const int rows = more ? 5 : 2;
  if (!type.lengths_of.empty()) {
    const std::vector<int32_t> lengths =
        more ? std::vector<int32_t>{3, 2} : std::vector<int32_t>{2};
    return new_array(lengths.data(), {static_cast<int>(lengths.size())}, mx::int32);
  }
  mx::Shape shape;
  for (const int64_t n : type.shape) shape.push_back(n < 0 ? rows : static_cast<int>(n));
  const bool real = mx::issubdtype(type.dtype, mx::floating);
  if (shape.empty() || !real) return mx::zeros(shape, type.dtype, mx::Device::cpu);
  mx::Shape column(shape.size(), 1);
  column[0] = shape[0];
  const mx::array counted = mx::reshape(mx::arange(0, shape[0], 1, mx::float32, mx::Device::cpu),
                                        column, mx::Device::cpu);
  return mx::astype(mx::broadcast_to(counted, shape, mx::Device::cpu), type.dtype, mx::Device::cpu);
}

ProgramType type_of(const ProgramValue& value) {
  ProgramType type;
  if (const auto* tensor = std::get_if<SparseTensor>(&value)) {
    type = {
        "sparse", tensor->dtype(), {tensor->capacity(), tensor->channels()}, tensor->stride(), {}};
  } else if (const auto* array = std::get_if<mx::array>(&value)) {
    type.dtype = array->dtype();
    for (const int n : array->shape()) type.shape.push_back(n);
  } else if (const auto* object = std::get_if<ProgramObject>(&value)) {
    type.kind = object->kind;
  }
  return type;
}

// The values of a trial. An argument that does not fit is a mistake of the file.
std::vector<ProgramValue> tried(const Frame& frame, const Execution& execution) {
  try {
    return execute(frame, execution);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::argument) throw;
    throw Error(ErrorCode::file,
                std::string(error.what()) +
                    "; the graph does not fit the tensors of the file: export the network again",
                error.operation(), error.argument());
  }
}

}  // namespace

ProgramValues few_rows(const std::vector<ProgramPort>& inputs, bool more) {
  ProgramValues values;
  for (const ProgramPort& port : inputs) {
    if (port.type.kind == "sparse")
      values.emplace(port.name, few_voxels(port.type, more));
    else
      values.emplace(port.name, few_values(port.type, more));
  }
  return values;
}

void dry_run(const std::shared_ptr<Loaded>& program, const std::vector<ProgramValues>& trials) {
  const ProgramLimits limits{0, 1 << 20, int64_t{1} << 32};
  program->outputs.clear();
  for (const auto& [name, value] : program->graph.outputs) program->outputs.push_back({name, {}});
  for (const ProgramValues& inputs : trials) {
    ProgramStats stats;
    const Frame frame = frame_of(program, inputs, limits);
    const auto values = tried(frame, {limits, stats, false, nullptr, true});
    for (size_t i = 0; i < program->outputs.size(); ++i) {
      const ProgramType found =
          type_of(values[static_cast<size_t>(program->graph.outputs[i].second)]);
      if (found.kind != "array" && found.kind != "sparse")
        throw Error(ErrorCode::file,
                    "[Program.load] line " + std::to_string(program->graph.output_lines[i]) +
                        ": an output must be an array or a sparse tensor, found a " + found.kind,
                    "Program.load", program->graph.outputs[i].first);
      ProgramType& type = program->outputs[i].type;
      if (&inputs == &trials.front()) type = found;
      for (size_t axis = 0; axis < type.shape.size() && axis < found.shape.size(); ++axis)
        if (found.shape[axis] == 0 || type.shape[axis] != found.shape[axis]) type.shape[axis] = -1;
    }
  }
}

}  // namespace lattice::program
