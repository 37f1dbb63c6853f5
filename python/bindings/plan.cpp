// Geometry plans. Arguments and files only.
#include "lattice/core/geometry_plan.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/ops/device.h"
#include "lattice/ops/relations.h"

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
  return GeometryPlan::decode(bytes, gradients, relation_builder(), default_is_gpu());
}

void def_files(nb::class_<GeometryPlan>& c) {
  c.def(
       "encode",
       [](const GeometryPlan& plan) {
         const std::vector<uint8_t> data = encoded(plan);
         return nb::bytes(data.data(), data.size());
       },
       "The plan as bytes.")
      .def(
          "save",
          [](const GeometryPlan& plan, nb::handle path) {
            const std::vector<uint8_t> data = encoded(plan);
            nb::module_::import_("mlx_lattice.io.atomic_files")
                .attr("write_bytes")(path_of(path), nb::bytes(data.data(), data.size()));
          },
          "path"_a, nb::sig("def save(self, path: str | os.PathLike[str]) -> None"),
          "Writes the plan to a file; a failed write leaves what was there.")
      .def_static(
          "load",
          [](nb::handle path, bool gradients) {
            return decoded(nb::cast<nb::bytes>(path_of(path).attr("read_bytes")()), gradients);
          },
          "path"_a, "gradients"_a = true,
          nb::sig("def load(path: str | os.PathLike[str], gradients: bool = True) -> GeometryPlan"),
          "The plan of a file; ValueError if it is damaged or of another version.");
}

}  // namespace

void bind_plan(nb::module_& m) {
  nb::class_<GeometryPlan> c(m, "GeometryPlan",
                             R"(Every relation that a network needs on one scan.

`models.MinkUNet.plan` and `record` make one; `bind` gives tensors on the plan's coordinates, for
which nothing is built any more. Plans can be saved beside the scans.

>>> from mlx_lattice import models, samples
>>> net = models.MinkUNet(4, 3, width=4)
>>> x = samples.tensor()
>>> plan = net.plan(x)
>>> net(plan.bind(x.feats)).shape
(6, 3))");
  def_static(
      c, "record",
      [](const SparseTensor& x, bool gradients) {
        return GeometryPlan::record(x, gradients, default_is_gpu());
      },
      "x"_a, "gradients"_a = true, Unlocked(),
      "What x's manager holds now, beginning from x; views that arithmetic reads are built.");
  def_method(
      c, "bind", [](const GeometryPlan& plan, const mx::array& feats) { return plan.bind(feats); },
      "feats"_a, "A sparse tensor with these features on the plan's coordinates.");
  def_static(c, "decode", &decoded, "data"_a, "gradients"_a = true, "The plan of encoded bytes.");
  def_files(c);
  c.def_prop_ro("coord_manager", &GeometryPlan::manager, "The manager of all relations.")
      .def_prop_ro("coord_key", &GeometryPlan::key, "The key of the scan's coordinates.")
      .def_prop_ro(
          "coords",
          [](const GeometryPlan& plan) { return plan.manager()->set(plan.key()).python_array(); },
          "The coordinates (N, 4) of the scan.")
      .def_prop_ro(
          "batch_counts",
          [](const GeometryPlan& plan) -> std::optional<IntTuple> {
            if (!plan.batch_counts()) return std::nullopt;
            return to_python(*plan.batch_counts());
          },
          "Rows of each batch item, or None.")
      .def_prop_ro(
          "relations",
          [](const GeometryPlan& plan) {
            std::vector<Relation::Ptr> out;
            for (const CachedRelation& step : plan.steps()) out.push_back(step.relation);
            return out;
          },
          "The relations, in the order in which they are built.")
      .def_prop_ro("nbytes", &GeometryPlan::nbytes, "Bytes of the relations.")
      .def("__repr__", &GeometryPlan::text);
}
