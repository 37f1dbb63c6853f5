// CoordinateManager: the coordinate sets of a network and the relations between them.
#include "lattice/core/coordinate_manager.h"

#include "arguments.h"
#include "bind.h"
#include "identity.h"
#include "lattice/ops/coords.h"
#include "lattice/ops/relations.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Manager = CoordinateManager;
using Key = const CoordinateMapKey&;
using Class = nb::class_<Manager>;
using Counts = nb::typed<nb::dict, std::string, int>;

Counts stats(const Manager& self) {
  const CacheStats s = self.stats();
  nb::dict out;
  out["hits"] = s.hits;
  out["misses"] = s.misses;
  out["evictions"] = s.evictions;
  out["relations"] = s.relations;
  out["coordinate_sets"] = s.coordinate_sets;
  out["bytes"] = s.bytes;
  out["budget"] = s.budget;
  return Counts(out);
}

// One name per kind.
void def_relation(Class& c, const char* name, RelationKind kind, int size, int stride,
                  const char* doc) {
  def_method(
      c, name,
      [name, kind](Manager& self, Key key, const KernelSize& kernel, const Triple& step,
                   const Triple& padding, const Triple& dilation) {
        const KernelSpec spec = kernel_spec(name, kernel, step, padding, dilation);
        return relation_in(self, kind, key, std::nullopt, spec, name);
      },
      "key"_a, "kernel_size"_a = size, "stride"_a = stride, "padding"_a = 0, "dilation"_a = 1,
      Unlocked(), doc);
}

void def_target_relation(Class& c, const char* name, RelationKind kind, int size, int stride,
                         const char* doc) {
  def_method(
      c, name,
      [name, kind](Manager& self, Key key, Key target, const KernelSize& kernel, const Triple& step,
                   const Triple& padding, const Triple& dilation) {
        const KernelSpec spec = kernel_spec(name, kernel, step, padding, dilation);
        return relation_in(self, kind, key, target, spec, name);
      },
      "key"_a, "target_key"_a, "kernel_size"_a = size, "stride"_a = stride, "padding"_a = 0,
      "dilation"_a = 1, Unlocked(), doc);
}

void def_relations(Class& c) {
  using Kind = RelationKind;
  def_relation(c, "kernel_relation", Kind::forward, 3, 1, "Onto the distinct floor(c / stride).");
  def_relation(c, "submanifold_kernel_relation", Kind::submanifold, 3, 1,
               "Onto the same coordinates; odd sizes.");
  def_relation(c, "transposed_kernel_relation", Kind::transposed, 2, 2,
               "Onto the distinct c * stride + offset - padding.");
  def_relation(c, "generative_relation", Kind::generative, 2, 2,
               "Onto the distinct c * stride + offset.");
  def_target_relation(c, "target_kernel_relation", Kind::target, 3, 1,
                      "Onto the coordinates of target_key.");
  def_target_relation(c, "target_transposed_relation", Kind::target_transposed, 2, 2,
                      "The transposed relation onto the coordinates of target_key.");
  def_target_relation(c, "target_transposed_view", Kind::target_transposed, 2, 2,
                      "An older name of target_transposed_relation.");
}

}  // namespace

void bind_manager(nb::module_& m) {
  Class c(m, "CoordinateManager",
          R"(Owner of coordinate sets, and cache of the relations between them. Safe to share
between threads.

A tensor has a manager, and what is computed from it has the same one. Equal arguments give the same
relation object. Relations that were used least recently leave the cache above `budget` bytes.

>>> from mlx_lattice import samples
>>> x = samples.tensor()
>>> manager = x.coord_manager
>>> r = manager.submanifold_kernel_relation(x.coord_key)
>>> manager.submanifold_kernel_relation(x.coord_key) is r, manager.stats()["hits"]
(True, 1))");
  c.def(nb::new_([](size_t budget) { return Manager::create(budget); }),
        "budget"_a = Manager::kDefaultBudget);
  def_method(
      c, "insert_coords",
      [](Manager& self, const Given& coords, const Triple& stride,
         const std::optional<mx::array>& active_rows) {
        return self.insert_coords(coords, stride, active_rows);
      },
      "coords"_a, "stride"_a = 1, "active_rows"_a = nb::none(), Unlocked(),
      "The key of coordinates (N, 4); the same array object and stride give the same key.");
  c.def_prop_ro("id", &Manager::id, "The number of this manager.")
      .def("owns", &Manager::owns, "key"_a, "Whether the key belongs to this manager.")
      .def(
          "coords",
          [](const Manager& self, Key key) { return ArrayObject(remembered(self.set(key))); },
          "key"_a, "The coordinates (N, 4) of a key.")
      .def("active_rows", &Manager::active_rows, "key"_a, "Their number as an array (1,).")
      .def(
          "inverse_map",
          [](const Manager& self, Key source, Key target) {
            return inverse_map_in(self, source, target);
          },
          "source_key"_a, "target_key"_a, Unlocked(),
          "For each target row the source row with the same coordinate, or -1.")
      .def("stats", &stats, "Hits, misses, evictions, relations, coordinate sets and bytes.")
      .def("clear", &Manager::clear, "Drops the cached relations; keys and coordinates stay.")
      .def("set_budget", &Manager::set_budget, "bytes"_a, "Changes the budget.")
      .def("__repr__", [](const Manager& self) {
        const CacheStats s = self.stats();
        return "CoordinateManager(id=" + std::to_string(self.id()) +
               ", coordinate_sets=" + std::to_string(s.coordinate_sets) +
               ", relations=" + std::to_string(s.relations) + ")";
      });
  def_relations(c);
}
