// Geometry plans. Arguments and files only.
#include "lattice/core/geometry_plan.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

nb::object path_of(nb::handle path) { return nb::module_::import_("pathlib").attr("Path")(path); }

std::vector<uint8_t> encoded(const GeometryPlan& plan) {
  Release release;
  return plan.encode();
}

GeometryPlan decoded(const nb::bytes& data, bool gradients) {
  const std::span<const uint8_t> bytes(static_cast<const uint8_t*>(data.data()), data.size());
  Release release;
  return GeometryPlan::decode(bytes, gradients);
}

}  // namespace

void bind_plan(nb::module_& m) {
  nb::class_<GeometryPlan>(m, "GeometryPlan", "Every relation that a network needs on one scan.")
      .def_static(
          "record", &GeometryPlan::record, "x"_a, "gradients"_a = true, Unlocked(),
          "What x's manager holds now, beginning from x; views that arithmetic reads are built.")
      .def("bind", &GeometryPlan::bind, "feats"_a,
           "A sparse tensor with these features on the plan's coordinates.")
      .def("encode",
           [](const GeometryPlan& plan) {
             const std::vector<uint8_t> data = encoded(plan);
             return nb::bytes(data.data(), data.size());
           })
      .def_static("decode", &decoded, "data"_a, "gradients"_a = true)
      .def(
          "save",
          [](const GeometryPlan& plan, nb::handle path) {
            const std::vector<uint8_t> data = encoded(plan);
            nb::module_::import_("mlx_lattice._atomic")
                .attr("write_bytes")(path_of(path), nb::bytes(data.data(), data.size()));
          },
          "path"_a)
      .def_static(
          "load",
          [](nb::handle path, bool gradients) {
            return decoded(nb::cast<nb::bytes>(path_of(path).attr("read_bytes")()), gradients);
          },
          "path"_a, "gradients"_a = true)
      .def_prop_ro("coord_manager", &GeometryPlan::manager)
      .def_prop_ro("coord_key", &GeometryPlan::key)
      .def_prop_ro(
          "coords",
          [](const GeometryPlan& plan) { return plan.manager()->set(plan.key()).python_array(); })
      .def_prop_ro("batch_counts",
                   [](const GeometryPlan& plan) -> nb::object {
                     if (!plan.batch_counts()) return nb::none();
                     return nb::tuple(nb::cast(*plan.batch_counts()));
                   })
      .def_prop_ro("relations",
                   [](const GeometryPlan& plan) {
                     nb::list out;
                     for (const CachedRelation& step : plan.steps())
                       out.append(nb::cast(step.relation));
                     return out;
                   })
      .def_prop_ro("nbytes", &GeometryPlan::nbytes)
      .def("__repr__", &GeometryPlan::text);
}
