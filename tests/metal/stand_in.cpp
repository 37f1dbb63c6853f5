// The Python module lattice_stand_in of the tests: a Python function runs the kernels of a GPU that
// is not there, and says what that machine can do.
#include "lattice/graph/gpu_call.h"

#include "counting.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/function.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "lattice/routes/capability.h"
#include "lattice/routes/probe.h"

namespace nb = nanobind;
using namespace lattice;
using graph::GpuCall;
using graph::StandIn;

namespace {

std::optional<TensorOps> parse_tier(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  for (const TensorOps tier :
       {TensorOps::unavailable, TensorOps::gpu, TensorOps::neural_accelerator})
    if (*text == name(tier)) return tier;
  throw std::invalid_argument("tier must be unavailable, gpu or neural_accelerator, got '" + *text +
                              "'");
}

// run(call, inputs, launch) -> outputs; nb::function casters keep the GIL where Python runs.
void fill(const nb::object& run, const std::string& backend, const std::optional<std::string>& tier,
          std::optional<bool> probing, bool tf32) {
  StandIn machine{.backend = backend == "cuda" ? graph::GpuBackend::cuda : graph::GpuBackend::metal,
                  .tensor_ops = parse_tier(tier),
                  .probing = probing,
                  .tf32_products = tf32};
  if (!run.is_none()) machine.run = nb::cast<decltype(StandIn::run)>(run);
  graph::stand_in() = std::move(machine);
  routes::forget_probes();
}

nb::list outputs_of(const GpuCall& call) {
  nb::list specs;
  for (const auto& spec : call.outputs)
    specs.append(
        nb::make_tuple(std::vector<int>(spec.shape.begin(), spec.shape.end()), spec.dtype));
  return specs;
}

}  // namespace

NB_MODULE(lattice_stand_in, m) {
  nb::module_::import_("mlx.core");
  nb::class_<GpuCall>(m, "GpuCall")
      .def_ro("name", &GpuCall::name)
      .def_prop_ro("cuda_header", [](const GpuCall& c) { return std::string(c.header.cuda); })
      .def_ro("source", &GpuCall::source)
      .def_ro("input_names", &GpuCall::input_names)
      .def_ro("output_names", &GpuCall::output_names)
      .def_ro("template_args", &GpuCall::template_args)
      .def_ro("grid", &GpuCall::grid)
      .def_ro("threadgroup", &GpuCall::threadgroup)
      .def_ro("init_value", &GpuCall::init_value)
      .def_prop_ro("outputs", &outputs_of);
  m.def("fill", &fill, nb::arg("run").none(), nb::arg("backend"), nb::arg("tier").none(),
        nb::arg("probing").none(), nb::arg("tf32"));
  bind_counting(m);
  m.def("clear", [] {
    graph::stand_in() = {};
    routes::forget_probes();
  });
}
