#include "lattice/graph/gpu_call.h"

#include <mlx/backend/cuda/cuda.h>
#include <mlx/backend/metal/metal.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>

#include "lattice/graph/cpu_call.h"

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

std::atomic<int64_t> launches{0};

[[noreturn]] void refuse(const GpuCall& call, const std::string& text) {
  throw std::invalid_argument("[" + call.name + "] " + text);
}

// Whether threads of a group wait for each other; then no thread of a group may be missing.
bool works_together(const GpuCall& call) {
  return !call.shared.empty() || call.source.find("simdgroup") != std::string::npos;
}

void check(const GpuCall& call, size_t inputs) {
  if (inputs != call.input_names.size() || call.outputs.size() != call.output_names.size())
    refuse(call, "found " + std::to_string(inputs) + " inputs and " +
                     std::to_string(call.outputs.size()) + " outputs, expected one per name");
  if (call.source.find("threadgroup ") != std::string::npos)
    refuse(call, "found a threadgroup variable in the source, expected it in `shared`");
  for (size_t a = 0; works_together(call) && a < 3; ++a)
    if (call.grid[a] % call.threadgroup[a])
      refuse(call, "found " + std::to_string(call.grid[a]) + " threads along axis " +
                       std::to_string(a) + ", expected a multiple of " +
                       std::to_string(call.threadgroup[a]) + ": the threads share memory");
}

std::string shared_text(const GpuCall& call, const std::string& word) {
  std::string text;
  for (const SharedArray& v : call.shared)
    text += word + v.type + " " + v.name + "[" + v.length + "];\n";
  return text;
}

// The call in the words of a backend: all of its source, and for CUDA its own grid and one more
// input.
struct Ready {
  GpuCall call;
  std::vector<mx::array> inputs;
  GpuBackend backend;
};

Ready for_metal(const GpuCall& call, const std::vector<mx::array>& inputs) {
  Ready ready{call, inputs, GpuBackend::metal};
  ready.call.source = shared_text(call, "threadgroup ") + call.source;
  return ready;
}

// CUDA's grid ends at 65,535 groups along y and z, and MLX counts threads in int. So groups lie
// along x, one thread wide, and the threads of a group along y.
Ready for_cuda(const GpuCall& call, const std::vector<mx::array>& inputs) {
  Ready ready{call, inputs, GpuBackend::cuda};
  std::vector<int32_t> numbers(call.grid.begin(), call.grid.end());
  int64_t groups = 1, threads = 1;
  for (size_t a = 0; a < 3; ++a) {
    const int64_t size = std::min(call.threadgroup[a], call.grid[a]);  // as MLX does on Metal
    groups *= (call.grid[a] + size - 1) / size;
    threads *= size;
    numbers.push_back(static_cast<int32_t>(size));
  }
  if (groups > std::numeric_limits<int32_t>::max())
    refuse(call, "found " + std::to_string(groups) +
                     " groups of threads, expected fewer than 2^31; split the rows");
  ready.call.source = "LATTICE_PLACE(launch)\n";
  if (!works_together(call)) ready.call.source += "if (!lattice_place.inside) return;\n";
  ready.call.source += shared_text(call, "__shared__ __align__(16) ") + call.source;
  ready.call.input_names.emplace_back("launch");
  ready.inputs.push_back(mx::array(numbers.begin(), {6}, mx::int32));
  ready.call.grid = {static_cast<int>(groups), static_cast<int>(threads), 1};
  ready.call.threadgroup = {1, static_cast<int>(threads), 1};
  return ready;
}

std::vector<mx::array> launch(const Ready& ready, const std::vector<mx::array>& inputs,
                              mx::StreamOrDevice s) {
  const GpuCall& call = ready.call;
  std::vector<mx::Shape> shapes;
  std::vector<mx::Dtype> dtypes;
  for (const OutputSpec& spec : call.outputs) {
    shapes.push_back(spec.shape);
    dtypes.push_back(spec.dtype);
  }
  const bool dense = call.strided.empty();  // then MLX makes the copies
  auto kernel = ready.backend == GpuBackend::cuda
                    ? mx::fast::cuda_kernel(call.name, call.input_names, call.output_names,
                                            call.source, std::string(call.header.cuda), dense)
                    : mx::fast::metal_kernel(call.name, call.input_names, call.output_names,
                                             call.source, std::string(call.header.metal), dense);
  const auto& g = call.grid;
  const auto& t = call.threadgroup;
  return kernel(inputs, shapes, dtypes, {g[0], g[1], g[2]}, {t[0], t[1], t[2]}, call.template_args,
                call.init_value,
                /*verbose=*/false, s);
}

// The inputs with copies of those that must be dense and may not be.
std::vector<mx::array> dense_inputs(const Ready& ready, mx::StreamOrDevice s) {
  std::vector<mx::array> inputs;
  inputs.reserve(ready.inputs.size());
  for (size_t i = 0; i < ready.inputs.size(); ++i) {
    const bool strided = std::ranges::count(ready.call.strided, ready.call.input_names[i]) > 0;
    inputs.push_back(strided ? ready.inputs[i] : row_contiguous(ready.inputs[i], s));
  }
  return inputs;
}

std::vector<mx::array> run_on_stand_in(const Ready& ready, mx::StreamOrDevice s) {
  const std::vector<mx::array> inputs = dense_inputs(ready, s);
  return stand_in().run(ready.call, inputs, [&ready](const std::vector<mx::array>& in) {
    return launch(ready, in, mx::Device::gpu);
  });
}

}  // namespace

StandIn& stand_in() {
  static auto* machine = new StandIn;
  return *machine;
}

int64_t gpu_launches() { return launches; }

GpuBackend gpu_backend() {
  if (stand_in().run) return stand_in().backend;
  if (mx::metal::is_available()) return GpuBackend::metal;
  return mx::cu::is_available() ? GpuBackend::cuda : GpuBackend::none;
}

std::vector<mx::array> gpu_call(const GpuCall& call, const std::vector<mx::array>& inputs,
                                mx::StreamOrDevice s) {
  check(call, inputs.size());
  if (call.grid[0] == 0 || call.grid[1] == 0 || call.grid[2] == 0) {
    std::vector<mx::array> filled;
    filled.reserve(call.outputs.size());
    for (const OutputSpec& spec : call.outputs) {
      filled.push_back(
          mx::full(spec.shape, mx::array(call.init_value.value_or(0.0f)), spec.dtype, s));
    }
    return filled;
  }
  ++launches;
  const GpuBackend backend = gpu_backend();
  const Ready ready =
      backend == GpuBackend::cuda ? for_cuda(call, inputs) : for_metal(call, inputs);
  if (stand_in().run) return run_on_stand_in(ready, s);
  if (backend != GpuBackend::none)
    return launch(ready, call.strided.empty() ? ready.inputs : dense_inputs(ready, s), s);
  // Without a GPU, MLX builds a node of Metal only while a function is exported: that is how tests
  // read the text.
  try {
    return launch(ready, ready.inputs, s);
  } catch (const std::exception& error) {
    throw std::runtime_error("[" + call.name +
                             "] found no Metal or CUDA device, expected one: " + error.what());
  }
}

}  // namespace lattice::graph
