#include "lattice/ops/backend.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bind.h"

using lattice::MetalLaunch;

void bind_backend(nb::module_& m) {
  nb::class_<MetalLaunch>(m, "MetalLaunch", "What MLX would hand to Metal for one launch.")
      .def_ro("name", &MetalLaunch::name, "Of the kernel function.")
      .def_ro("text", &MetalLaunch::text, "All that is compiled behind MLX's header.")
      .def_ro("grid", &MetalLaunch::grid, "Threads.")
      .def_ro("threadgroup", &MetalLaunch::threadgroup, "Threads of one group.")
      .def_ro("shape_info", &MetalLaunch::shape_info,
              "Per input: whether shape, strides, ndim are arguments too.")
      .def_ro("init_value", &MetalLaunch::init_value)
      .def_prop_ro(
          "outputs",
          [](const MetalLaunch& launch) {
            nb::list specs;
            for (const auto& spec : launch.outputs)
              specs.append(nb::make_tuple(std::vector<int>(spec.shape.begin(), spec.shape.end()),
                                          spec.dtype));
            return specs;
          },
          "Shape and dtype of each.");
  m.def(
      "set_metal_host",
      [](nb::object host) {
        if (host.is_none()) return lattice::set_metal_host({});
        // Released with the GIL held; the interpreter may be gone when the library is.
        std::shared_ptr<nb::object> held(new nb::object(std::move(host)), [](nb::object* o) {
          nb::gil_scoped_acquire gil;
          delete o;
        });
        lattice::set_metal_host(
            [held](const MetalLaunch& launch, const std::vector<mlx::core::array>& inputs) {
              nb::gil_scoped_acquire gil;
              return nb::cast<std::vector<mlx::core::array>>((*held)(launch, inputs));
            });
      },
      nb::arg("host").none(),
      "host(launch, inputs) -> outputs runs Metal kernels where there is no Metal; tests use it. "
      "None: no host.");
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
        result["tensor_ops"] = lattice::name(info.tensor_ops);
        result["metal_status"] = info.metal_status;
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
