#include "lattice/routes/capability.h"

#include <mlx/backend/metal/metal.h>
#include <mlx/device.h>

#include <variant>

#include "lattice/core/errors.h"
#include "lattice/graph/gpu_call.h"

namespace lattice {
namespace mx = mlx::core;
namespace {

constexpr int kNeuralAcceleratorGeneration = 17;

bool has_tensor_api() {
#ifdef __APPLE__
  if (__builtin_available(macOS 26.2, *)) return true;
#endif
  return false;
}

}  // namespace

int gpu_generation(const std::string& architecture) {
  size_t at = architecture.find("_g");
  if (at == std::string::npos) return 0;
  int generation = 0;
  for (at += 2; at < architecture.size() && architecture[at] >= '0' && architecture[at] <= '9' &&
                generation < 1000;
       ++at) {
    generation = 10 * generation + (architecture[at] - '0');
  }
  return generation;
}

TensorOps tensor_ops() {
  if (graph::has_gpu_host())
    return graph::gpu_backend() == graph::GpuBackend::metal ? TensorOps::gpu
                                                            : TensorOps::unavailable;
  if (!mx::metal::is_available()) return TensorOps::unavailable;
  if (!has_tensor_api()) return TensorOps::gpu;
  const auto& info = mx::device_info(mx::Device::gpu);
  auto found = info.find("architecture");
  const auto* architecture =
      found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
  bool accelerated = architecture && gpu_generation(*architecture) >= kNeuralAcceleratorGeneration;
  return accelerated ? TensorOps::neural_accelerator : TensorOps::gpu;
}

bool on_gpu(mx::StreamOrDevice s) {
  return graph::has_gpu_host() || mx::to_stream(s).device == mx::Device::gpu;
}

void check_coords_on_device(std::string_view operation, const mx::array& coords,
                            mx::StreamOrDevice s) {
  if (coords.dtype() == mx::int64 && on_gpu(s))
    fail(operation, "coords must be int32 on a GPU, got int64; convert them with astype(mx.int32)");
}

const char* name(TensorOps tier) {
  switch (tier) {
    case TensorOps::gpu:
      return "gpu";
    case TensorOps::neural_accelerator:
      return "neural_accelerator";
    default:
      return "unavailable";
  }
}

}  // namespace lattice
