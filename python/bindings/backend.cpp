#include "lattice/ops/backend.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "lattice/ops/device.h"
#include "lattice/routes/capability.h"

namespace {

nb::dict info_dict() {
  const lattice::BackendInfo info = lattice::backend_info();
  nb::dict mlx, capabilities, probes, result;
  mlx["built"] = info.mlx_built;
  mlx["running"] = info.mlx_running;
  capabilities["cpu"] = info.cpu;
  capabilities["metal"] = info.metal;
  capabilities["cuda"] = info.cuda;
  result["version"] = info.version;
  result["mlx"] = mlx;
  result["capabilities"] = capabilities;
  result["simd"] = info.simd;
  result["threads"] = info.threads;
  result["tensor_ops"] = info.tensor_ops;
  result["float32_products"] = info.products;
  for (const auto& [label, failure] : info.probes)
    probes[label.c_str()] = failure.empty() ? std::string("passed") : "failed: " + failure;
  result["probes"] = probes;
  result["launches"] = info.launches;
  result["starts"] = info.starts;
  result["metal_status"] = info.metal_status;
  result["cuda_status"] = info.cuda_status;
  return result;
}

}  // namespace

void bind_backend(nb::module_& m) {
  m.def(
      "start_on_gpu",
      [](const std::vector<mlx::core::array>& arrays) {
        Release release;
        return lattice::start_on_gpu(arrays);
      },
      nb::arg("arrays"),
      "Starts to compute arrays if the default device is a GPU; returns whether it did.");
  m.def("running_statistics", &lattice::running_statistics, nb::arg("arrays"), nb::arg("momentum"),
        nb::arg("wider"), "Running mean and variance after a step on a GPU.");
  m.def("on_gpu", [] { return lattice::default_is_gpu(); }, "Whether the default device is a GPU.");
  m.def(
      "start",
      [](const std::vector<mlx::core::array>& arrays) {
        Release release;
        lattice::start(arrays);
      },
      nb::arg("arrays"), "Starts to compute arrays on any device and returns.");
  m.def(
      "backend_info", info_dict, nb::sig("def backend_info() -> dict[str, typing.Any]"),
      "What this build can do on this machine: versions, devices, instruction set, threads, matrix "
      "units.");
  m.def(
      "release_memory",
      [] {
        Release release;
        lattice::release_memory();
      },
      "Gives memory back that MLX and the kernels keep for reuse.");
  m.def("set_thread_count", &lattice::set_thread_count, nb::arg("n"),
        "Threads that one operation may use. Results do not depend on it.");
  m.def("limit_simd", &lattice::limit_simd, nb::arg("name"),
        "Runs kernels on the named instruction set from now on; an empty name lifts the limit.");
  m.def("thread_count", &lattice::thread_count, "Threads that one operation may use.");
}
