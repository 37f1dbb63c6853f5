// CoordinateManager: the coordinate sets of a network and the relations between them.
#include "lattice/core/coordinate_manager.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Manager = CoordinateManager;

template <auto method>
auto manager_relation(const char* name) {
  return [name](Manager& self, const CoordinateMapKey& key, const nb::object& size,
                const nb::object& stride, const nb::object& padding, const nb::object& dilation) {
    const KernelSpec spec = kernel_spec(name, size, stride, padding, dilation);
    Release release;
    return (self.*method)(key, spec);
  };
}

template <auto method>
auto manager_target_relation(const char* name) {
  return [name](Manager& self, const CoordinateMapKey& key, const CoordinateMapKey& target,
                const nb::object& size, const nb::object& stride, const nb::object& padding,
                const nb::object& dilation) {
    const KernelSpec spec = kernel_spec(name, size, stride, padding, dilation);
    Release release;
    return (self.*method)(key, target, spec);
  };
}

}  // namespace

void bind_manager(nb::module_& m) {
  nb::class_<Manager> c(m, "CoordinateManager",
                        "Owner of coordinate sets, and cache of the relations between them.");
  c.def(nb::new_([](size_t budget) { return Manager::create(budget); }),
        "budget"_a = Manager::kDefaultBudget)
      .def_prop_ro("id", &Manager::id)
      .def(
          "insert_coords",
          [](Manager& self, const mx::array& coords, const nb::object& stride,
             const std::optional<mx::array>& active_rows) {
            const Triple s = triple(stride, "CoordinateManager.insert_coords", "stride");
            Release release;
            return self.insert_coords(coords, s, active_rows);
          },
          "coords"_a, "stride"_a = 1, "active_rows"_a = nb::none())
      .def("owns", &Manager::owns, "key"_a)
      .def(
          "coords",
          [](const Manager& self, const CoordinateMapKey& key) {
            return self.set(key).python_array();
          },
          "key"_a)
      .def("active_rows", &Manager::active_rows, "key"_a)
      .def("inverse_map", &Manager::inverse_map, "source_key"_a, "target_key"_a, Unlocked())
      .def("stats",
           [](const Manager& self) {
             const CacheStats s = self.stats();
             nb::dict out;
             out["hits"] = s.hits;
             out["misses"] = s.misses;
             out["evictions"] = s.evictions;
             out["relations"] = s.relations;
             out["coordinate_sets"] = s.coordinate_sets;
             out["bytes"] = s.bytes;
             out["budget"] = s.budget;
             return out;
           })
      .def("clear", &Manager::clear, "Drops the cached relations; keys and coordinates stay.")
      .def("set_budget", &Manager::set_budget, "bytes"_a)
      .def("__repr__", [](const Manager& self) {
        const CacheStats s = self.stats();
        return "CoordinateManager(id=" + std::to_string(self.id()) +
               ", coordinate_sets=" + std::to_string(s.coordinate_sets) +
               ", relations=" + std::to_string(s.relations) + ")";
      });
  const auto relation = [&](const char* name, auto function, int size, int stride) {
    c.def(name, function, "key"_a, "kernel_size"_a = size, "stride"_a = stride, "padding"_a = 0,
          "dilation"_a = 1);
  };
  const auto target_relation = [&](const char* name, auto function, int size, int stride) {
    c.def(name, function, "key"_a, "target_key"_a, "kernel_size"_a = size, "stride"_a = stride,
          "padding"_a = 0, "dilation"_a = 1);
  };
  relation("kernel_relation", manager_relation<&Manager::kernel_relation>("kernel_relation"), 3, 1);
  relation("submanifold_kernel_relation",
           manager_relation<&Manager::submanifold_kernel_relation>("submanifold_kernel_relation"),
           3, 1);
  relation("transposed_kernel_relation",
           manager_relation<&Manager::transposed_kernel_relation>("transposed_kernel_relation"), 2,
           2);
  relation("generative_relation",
           manager_relation<&Manager::generative_relation>("generative_relation"), 2, 2);
  target_relation(
      "target_kernel_relation",
      manager_target_relation<&Manager::target_kernel_relation>("target_kernel_relation"), 3, 1);
  target_relation(
      "target_transposed_relation",
      manager_target_relation<&Manager::target_transposed_relation>("target_transposed_relation"),
      2, 2);
}
