#include "lattice/ops/backend.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bind.h"

using lattice::GpuBackend;
using lattice::GpuLaunch;

void bind_backend(nb::module_& m) {
  nb::class_<GpuLaunch>(m, "GpuLaunch", "What MLX would hand to a GPU for one launch.")
      .def_prop_ro(
          "backend",
          [](const GpuLaunch& launch) {
            return launch.backend == GpuBackend::cuda ? "cuda" : "metal";
          },
          "metal or cuda.")
      .def_ro("name", &GpuLaunch::name, "Of the kernel function.")
      .def_ro("text", &GpuLaunch::text,
              "Metal: all that is compiled behind MLX's header. CUDA: the header.")
      .def_ro("source", &GpuLaunch::source, "CUDA: the body of the kernel.")
      .def_ro("input_names", &GpuLaunch::input_names, "CUDA: one per input.")
      .def_ro("output_names", &GpuLaunch::output_names, "CUDA: one per output.")
      .def_ro("template_args", &GpuLaunch::template_args, "CUDA: name and number or dtype.")
      .def_ro("grid", &GpuLaunch::grid, "Threads.")
      .def_ro("threadgroup", &GpuLaunch::threadgroup, "Threads of one group.")
      .def_ro("shape_info", &GpuLaunch::shape_info,
              "Per input: whether shape, strides, ndim are arguments too.")
      .def_ro("init_value", &GpuLaunch::init_value)
      .def_prop_ro(
          "outputs",
          [](const GpuLaunch& launch) {
            nb::list specs;
            for (const auto& spec : launch.outputs)
              specs.append(nb::make_tuple(std::vector<int>(spec.shape.begin(), spec.shape.end()),
                                          spec.dtype));
            return specs;
          },
          "Shape and dtype of each.");
  m.def(
      "set_gpu_host",
      [](nb::object host, const std::string& backend) {
        if (host.is_none()) return lattice::set_gpu_host({});
        // Released with the GIL held; the interpreter may be gone when the library is.
        std::shared_ptr<nb::object> held(new nb::object(std::move(host)), [](nb::object* o) {
          nb::gil_scoped_acquire gil;
          delete o;
        });
        lattice::set_gpu_host(
            [held](const GpuLaunch& launch, const std::vector<mlx::core::array>& inputs) {
              nb::gil_scoped_acquire gil;
              return nb::cast<std::vector<mlx::core::array>>((*held)(launch, inputs));
            },
            backend == "cuda" ? GpuBackend::cuda : GpuBackend::metal);
      },
      nb::arg("host").none(), nb::arg("backend") = "metal",
      "host(launch, inputs) -> outputs runs kernels of \"metal\" or \"cuda\" where there is none; "
      "tests use it. None: no host.");
  m.def(
      "force_tensor_ops",
      [](std::optional<std::string> tier) {
        if (!tier) return lattice::force_tensor_ops(std::nullopt);
        using lattice::TensorOps;
        for (const TensorOps known :
             {TensorOps::unavailable, TensorOps::gpu, TensorOps::neural_accelerator})
          if (*tier == lattice::name(known)) return lattice::force_tensor_ops(known);
        throw std::invalid_argument(
            "[force_tensor_ops] tier must be unavailable, gpu or neural_accelerator, got '" +
            *tier + "'");
      },
      nb::arg("tier").none(),
      "Tests of routes that ask for a tier take this one in place of the machine's; None: the "
      "machine's.");
  m.def(
      "start_on_gpu",
      [](const std::vector<mlx::core::array>& arrays) {
        Release release;
        return lattice::start_on_gpu(arrays);
      },
      nb::arg("arrays"),
      "Starts to compute arrays if the default device is a GPU; returns whether it did.");
  m.def("set_probing", &lattice::set_probing, nb::arg("on").none(),
        "Probes of kernels run (True), do not run (False), or run where MLX has Metal (None). "
        "Forgets what ran. Tests use it.");
  m.def("set_tf32_stand_in", &lattice::set_tf32_stand_in, nb::arg("on"),
        "MLX's products round float32 to TF32, as some GPUs do. Tests use it.");
  m.def(
      "backend_info",
      [] {
        lattice::BackendInfo info = lattice::backend_info();
        nb::dict mlx, capabilities, result;
        mlx["built"] = info.mlx_built;
        mlx["running"] = info.mlx_running;
        capabilities["cpu"] = info.cpu;
        capabilities["metal"] = info.metal;
        capabilities["cuda"] = info.cuda;
        capabilities["mlir"] = false;  // asked for by users of older packages
        result["version"] = info.version;
        result["mlx"] = mlx;
        result["capabilities"] = capabilities;
        result["simd"] = info.simd;
        result["threads"] = info.threads;
        result["kept_weights"] = info.kept_weights;
        result["tensor_ops"] = lattice::name(info.tensor_ops);
        result["float32_products"] = lattice::name(info.products);
        nb::dict probes;
        for (const lattice::Probe& probe : info.probes)
          probes[probe.label.c_str()] =
              probe.failure.empty() ? std::string("passed") : "failed: " + probe.failure;
        result["probes"] = probes;
        result["metal_status"] = info.metal_status;
        result["cuda_status"] = info.cuda_status;
        return result;
      },
      "What this build can do on this machine: versions, devices, instruction set, threads, matrix "
      "units.");
  m.def("set_thread_count", &lattice::set_thread_count, nb::arg("n"),
        "Threads that one operation may use. Results do not depend on it.");
  m.def("limit_simd", &lattice::limit_simd, nb::arg("name"),
        "Runs kernels on the named instruction set from now on; an empty name lifts the limit.");
  m.def("thread_count", &lattice::thread_count, "Threads that one operation may use.");
}
