#include "lattice/routes/capability.h"

#include <mlx/backend/cuda/cuda.h>
#include <mlx/backend/metal/metal.h>
#include <mlx/device.h>
#include <mlx/transforms.h>

#include <atomic>
#include <variant>

#include "lattice/core/errors.h"

namespace lattice {
namespace mx = mlx::core;
namespace {

// The first generation whose family has the tensor API, and the first with neural accelerators.
// GPUs whose name ends in p (phones) have them one generation later. MLX asks the same.
constexpr int kTensorGeneration = 13, kAccelerated = 17, kAcceleratedPhone = 18;

std::atomic<int64_t> starts{0};

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

TensorOps tier_of(const std::string& architecture, bool has_api) {
  const int generation = gpu_generation(architecture);
  if (!has_api || generation < kTensorGeneration) return TensorOps::unavailable;
  const bool phone = architecture.ends_with('p');
  return generation >= (phone ? kAcceleratedPhone : kAccelerated) ? TensorOps::neural_accelerator
                                                                  : TensorOps::gpu;
}

TensorOps tensor_ops() {
  if (graph::stand_in().tensor_ops) return *graph::stand_in().tensor_ops;
  if (graph::stand_in().run)
    return graph::gpu_backend() == graph::GpuBackend::metal ? TensorOps::gpu
                                                            : TensorOps::unavailable;
  if (!mx::metal::is_available()) return TensorOps::unavailable;
  const auto& info = mx::device_info(mx::Device::gpu);
  auto found = info.find("architecture");
  const auto* architecture =
      found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
  return tier_of(architecture ? *architecture : "", has_tensor_api());
}

bool has_metal() { return graph::gpu_backend() == graph::GpuBackend::metal; }
bool has_cuda() { return graph::gpu_backend() == graph::GpuBackend::cuda; }

bool on_gpu(mx::StreamOrDevice s) {
  return graph::stand_in().run || mx::to_stream(s).device == mx::Device::gpu;
}

void start(const std::vector<mx::array>& arrays) {
  mx::async_eval(arrays);
  ++starts;
}

int64_t started() { return starts; }

bool start_on_gpu(const std::vector<mx::array>& arrays, mx::StreamOrDevice s) {
  if (!on_gpu(s)) return false;
  try {
    start(arrays);
  } catch (const std::exception&) {  // thrown before anything starts
    for (const mx::array& a : arrays)
      if (a.is_tracer()) return false;
    throw;
  }
  return true;
}

void check_coords_on_device(std::string_view operation, const mx::array& coords,
                            mx::StreamOrDevice s) {
  if (coords.dtype() == mx::int64 && on_gpu(s))
    fail(operation, "coords must be int32 on a GPU, got int64; convert them with astype");
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
