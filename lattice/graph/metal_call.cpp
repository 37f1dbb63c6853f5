#include "lattice/graph/metal_call.h"

#include <mlx/backend/metal/metal.h>
#include <mlx/export.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <stdexcept>

#include "lattice/graph/cpu_call.h"

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

std::vector<mx::array> launch(const MetalCall& call, const std::vector<mx::array>& inputs,
                              mx::StreamOrDevice s) {
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const OutputSpec& spec : call.outputs) {
    shapes.push_back(spec.shape);
    dtypes.push_back(spec.dtype);
  }
  auto kernel = mx::fast::metal_kernel(call.name, call.input_names, call.output_names, call.source,
                                       std::string(call.header));
  const auto& g = call.grid;
  const auto& t = call.threadgroup;
  return kernel(inputs, shapes, dtypes, {g[0], g[1], g[2]}, {t[0], t[1], t[2]}, call.template_args,
                call.init_value,
                /*verbose=*/false, s);
}

MetalHost& metal_host() {
  static auto* host = new MetalHost;
  return *host;
}

// The node of MLX for this call, taken apart: name, text, grid, threadgroup and which shapes are
// passed.
MetalLaunch describe(const MetalCall& call, const std::vector<mx::array>& inputs) {
  MetalLaunch found;
  found.outputs = call.outputs;
  found.init_value = call.init_value;
  const auto read = [&found](const mx::ExportCallbackInput& event) {
    const auto states = event.find("arguments");
    if (states == event.end()) return;
    std::vector<std::string> texts;
    std::vector<int> numbers;
    for (const mx::StateT& state : std::get<std::vector<mx::StateT>>(states->second)) {
      if (const auto* text = std::get_if<std::string>(&state)) texts.push_back(*text);
      if (const auto* number = std::get_if<int>(&state)) numbers.push_back(*number);
      if (const auto* flags = std::get_if<std::vector<std::tuple<bool, bool, bool>>>(&state))
        for (const auto& [shape, strides, ndim] : *flags)
          found.shape_info.push_back({shape, strides, ndim});
    }
    if (texts.size() < 2 || numbers.size() < 6)
      throw std::runtime_error("found an unknown form of MLX's kernel node");
    found.name = texts[0];
    found.text = texts[1];
    for (int i = 0; i < 3; ++i) found.grid[i] = numbers[i], found.threadgroup[i] = numbers[3 + i];
  };
  const std::function<std::vector<mx::array>(const mx::Args&)> function =
      [&call](const mx::Args& in) { return launch(call, in, mx::Device::gpu); };
  mx::export_function(mx::ExportCallback(read), function, inputs);
  return found;
}

std::vector<mx::array> run_on_host(const MetalCall& call, const std::vector<mx::array>& inputs,
                                   mx::StreamOrDevice s) {
  std::vector<mx::array> ready;
  for (const mx::array& input : inputs) ready.push_back(row_contiguous(input, s));
  mx::eval(ready);
  return metal_host()(describe(call, ready), ready);
}

}  // namespace

void set_metal_host(MetalHost host) { metal_host() = std::move(host); }
bool has_metal_host() { return static_cast<bool>(metal_host()); }

std::vector<mx::array> metal_call(const MetalCall& call, const std::vector<mx::array>& inputs,
                                  mx::StreamOrDevice s) {
  if (inputs.size() != call.input_names.size() || call.outputs.size() != call.output_names.size()) {
    throw std::invalid_argument("[" + call.name + "] found " + std::to_string(inputs.size()) +
                                " inputs and " + std::to_string(call.outputs.size()) +
                                " outputs, expected one per name");
  }
  if (call.grid[0] == 0 || call.grid[1] == 0 || call.grid[2] == 0) {
    std::vector<mx::array> filled;
    for (const OutputSpec& spec : call.outputs) {
      filled.push_back(
          mx::full(spec.shape, mx::array(call.init_value.value_or(0.0f)), spec.dtype, s));
    }
    return filled;
  }
  if (has_metal_host()) return run_on_host(call, inputs, s);
  if (mx::metal::is_available()) return launch(call, inputs, s);
  // Without Metal, MLX builds the node only while a function is exported: that is how tests read
  // the text.
  try {
    return launch(call, inputs, s);
  } catch (const std::exception& error) {
    throw std::runtime_error("[" + call.name +
                             "] found no Metal device, expected one: " + error.what());
  }
}

}  // namespace lattice::graph
