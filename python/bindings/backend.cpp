#include "lattice/ops/backend.h"

#include <nanobind/stl/string.h>

#include "bind.h"

void bind_backend(nb::module_& m) {
  m.def(
      "backend_info",
      [] {
        lattice::BackendInfo info = lattice::backend_info();
        nb::dict mlx, capabilities, result;
        mlx["built"] = info.mlx_built;
        mlx["running"] = info.mlx_running;
        capabilities["cpu"] = info.cpu;
        capabilities["metal"] = info.metal;
        result["version"] = info.version;
        result["mlx"] = mlx;
        result["capabilities"] = capabilities;
        result["simd"] = info.simd;
        result["threads"] = info.threads;
        result["tensor_ops"] = lattice::name(info.tensor_ops);
        return result;
      },
      "What this build can do on this machine: versions, devices, instruction set, threads, matrix units.");
  m.def("set_thread_count", &lattice::set_thread_count, nb::arg("n"),
        "Threads that one operation may use. Results do not depend on it.");
  m.def("thread_count", &lattice::thread_count, "Threads that one operation may use.");
}
