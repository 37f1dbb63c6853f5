// Implements the programs and sessions of program.h.
#include "lattice/program/program.h"

#include <mlx/memory.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>

#include "lattice/program/executor.h"
#include "lattice/program/loaded.h"
#include "lattice/program/mlir_lower.h"
#include "lattice/program/mlir_write.h"

namespace lattice {

using namespace program;

namespace {

// On the CPU, MLX keeps 32 MB of freed memory by default, so that a network gets fresh pages from
// the system in every layer: 7 % of a frame of MinkUNet-18. Four times what the values of the
// largest frame held is enough, and memory stays flat over frames of different sizes; with 4 GB it
// grew by a third over 1,000 frames. A larger limit that somebody set stays.
void keep_memory(int64_t bytes) {
  static std::atomic<size_t> limit{0};
  const size_t wanted = std::max<size_t>(size_t{64} << 20, 4 * static_cast<size_t>(bytes));
  if (wanted <= limit) return;
  const size_t before = mx::set_cache_limit(wanted);
  if (before > wanted) mx::set_cache_limit(before);
  limit = std::max(before, wanted);
}

Program made(TensorFile file) { return Program(load_program(std::move(file))); }

// Inputs or outputs of the example: "input.x" or "input.x.coords", "input.x.feats".
ProgramValues example_values(const Loaded& loaded, const std::string& side,
                             const std::vector<ProgramPort>& ports) {
  const auto find = [&](const std::string& name) {
    const auto found = loaded.example.arrays.find(name);
    if (found == loaded.example.arrays.end())
      throw Error(ErrorCode::file, "[Program] the example has no \"" + name + "\"",
                  "Program.example", name);
    return found->second;
  };
  ProgramValues values;
  for (const ProgramPort& port : ports) {
    const std::string name = side + "." + port.name;
    if (port.type.kind != "sparse") {
      values.emplace(port.name, find(name));
      continue;
    }
    const mx::array counts = find(name + ".counts");
    if (counts.dtype() != mx::int64 || counts.ndim() != 1)
      throw Error(ErrorCode::file,
                  "[Program] \"" + name + ".counts\" of the example must be i64[?]",
                  "Program.example", name);
    const BatchCounts rows(counts.data<int64_t>(), counts.data<int64_t>() + counts.size());
    values.emplace(port.name, SparseTensor(find(name + ".coords"), find(name + ".feats"),
                                           port.type.stride, std::nullopt, nullptr,
                                           rows.empty() ? std::nullopt : std::optional(rows)));
  }
  return values;
}

}  // namespace

Program Program::load(const std::string& path) {
  if (std::filesystem::is_directory(path)) {  // an artifact of the older package
    return Program(mlir::load_folder(path));
  }
  const std::string bytes = read_bytes(path);
  try {
    return made(read_tensors(std::as_bytes(std::span(bytes))));
  } catch (const Error& error) {
    throw Error(error.code(), path + ": " + error.what(), error.operation(), error.argument());
  }
}

Program Program::load_memory(std::span<const std::byte> bytes) { return made(read_tensors(bytes)); }

const std::vector<ProgramPort>& Program::inputs() const { return loaded_->graph.inputs; }
const std::vector<ProgramPort>& Program::outputs() const { return loaded_->outputs; }
const std::string& Program::text() const { return loaded_->text; }

const std::string& Program::note(const std::string& key) const {
  static const std::string none;
  const auto found = loaded_->notes.find(key);
  return found == loaded_->notes.end() ? none : found->second;
}

bool Program::has_example() const { return !loaded_->example.arrays.empty(); }

std::pair<ProgramValues, ProgramValues> Program::example() const {
  return {example_values(*loaded_, "input", inputs()),
          example_values(*loaded_, "output", outputs())};
}

void Program::export_mlir(const std::string& folder) const {
  const auto [text, weights] = mlir::write(*loaded_);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  for (const auto& [name, bytes] :
       {std::pair{"weights.safetensors", write_tensors(weights)}, std::pair{"graph.mlir", text}}) {
    std::ofstream out(std::filesystem::path(folder) / name, std::ios::binary);
    if (!out.write(bytes.data(), static_cast<std::streamsize>(bytes.size())).flush())
      throw Error(ErrorCode::file,
                  "[Program.export_mlir] " + folder + "/" + name + " cannot be written",
                  "Program.export_mlir", "folder");
  }
}

int64_t Program::bytes_for(int64_t rows) const { return memory_bound(loaded_, rows); }

Session Program::session(const ProgramLimits& limits) const { return {*this, limits}; }

Session::Session(Program program, const ProgramLimits& limits)
    : program_(std::move(program)), limits_(limits) {}

ProgramValues Session::run(const ProgramValues& inputs) {
  return run_frame(frame_of(program_.loaded(), inputs, limits_));
}

ProgramValues Session::run(const PreparedFrame& frame) {
  if (frame.frame()->program != program_.loaded())
    throw Error(ErrorCode::argument, "[Program.run] the frame was prepared for another program",
                "Program.run", "frame");
  return run_frame(*frame.frame());
}

ProgramValues Session::run_frame(const program::Frame& frame) {
  const Graph& graph = program_.loaded()->graph;
  stats_ = {};
  stats_.voxelize = frame.voxelize;
  stats_.geometry = frame.geometry;
  const auto values = execute(frame, {limits_, stats_, false, &traced_values_});
  ProgramValues outputs;
  traced_.clear();
  std::vector<mx::array> arrays;
  for (const auto& [name, value] : graph.outputs)
    outputs.emplace(name, values[static_cast<size_t>(value)]);
  for (const int value : traced_values_)
    traced_.emplace(graph.names[static_cast<size_t>(value)], values[static_cast<size_t>(value)]);
  for (const auto& [name, value] : outputs) append_arrays(value, arrays);
  for (const auto& [name, value] : traced_) append_arrays(value, arrays);
  keep_memory(stats_.bytes);
  const auto began = std::chrono::steady_clock::now();
  try {
    mx::eval(arrays);
  } catch (...) {
    rethrow_at("[Program.run]", "Program.run");
  }
  const double spent =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - began).count();
  const auto is_points = [](const Node& node) { return node.operation->phase == Phase::points; };
  const bool back = std::any_of(graph.nodes.begin(), graph.nodes.end(), is_points);
  (back ? stats_.points : stats_.features) += spent;
  return outputs;
}

PreparedFrame Session::prepare(const ProgramValues& inputs) {
  auto frame = std::make_shared<program::Frame>(frame_of(program_.loaded(), inputs, limits_));
  ProgramStats stats;
  const Loaded& loaded = *program_.loaded();
  const auto values = execute(*frame, {limits_, stats, true, nullptr});
  std::vector<mx::array> arrays;
  for (size_t i = 0; i < loaded.graph.nodes.size(); ++i) {
    if (!loaded.prepared[i]) continue;
    for (const int value : loaded.graph.nodes[i].results) {
      const auto at = static_cast<size_t>(value);
      frame->values[at] = values[at];
      append_arrays(values[at], arrays);
    }
  }
  mx::eval(arrays);
  frame->voxelize = stats.voxelize;
  frame->geometry = stats.geometry;
  return PreparedFrame(frame);
}

const ProgramStats& Session::stats() const { return stats_; }

void Session::trace(const std::vector<std::string>& names) {
  const auto& known = program_.loaded()->graph.names;
  std::vector<int> found;
  for (const std::string& name : names) {
    const auto at = std::find(known.begin(), known.end(), name);
    if (at == known.end())
      throw Error(ErrorCode::argument,
                  "[Program.trace] the graph has no value `" + name +
                      "`; `mlx-lattice info` prints the graph",
                  "Program.trace", name);
    found.push_back(static_cast<int>(at - known.begin()));
  }
  traced_values_ = std::move(found);
}

const ProgramValues& Session::traced() const { return traced_; }

}  // namespace lattice
