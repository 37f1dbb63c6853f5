// KernelSpec, CoordinateMapKey, KernelRelation and the functions that build relations.
#include "lattice/ops/relations.h"

#include <nanobind/operators.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"

using namespace lattice;
using namespace nb::literals;

namespace {

nb::tuple triples(const std::vector<Triple>& values) {
  nb::list out;
  for (const Triple& t : values) out.append(to_python(t));
  return nb::tuple(out);
}

// Frozen values: equality, hash and pickling by the tuple of fields.
template <typename T, typename Fields>
void def_frozen(nb::class_<T>& c, Fields fields) {
  c.def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
  c.def("__hash__", [fields](const T& self) { return nb::hash(fields(self)); });
  c.def("__reduce__", [fields](nb::handle self) {
    return nb::make_tuple(self.type(), fields(nb::cast<const T&>(self)));
  });
}

void bind_values(nb::module_& m) {
  nb::class_<KernelSpec> spec(
      m, "KernelSpec", "Size, stride, padding and dilation of a kernel: integers or triples.");
  spec.def(
      "__init__",
      [](KernelSpec* self, const nb::object& size, const nb::object& stride,
         const nb::object& padding, const nb::object& dilation) {
        new (self) KernelSpec(
            triple(size, "KernelSpec", "size"), triple(stride, "KernelSpec", "stride"),
            triple(padding, "KernelSpec", "padding"), triple(dilation, "KernelSpec", "dilation"));
      },
      "size"_a = 3, "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1);
  spec.def_prop_ro("size", [](const KernelSpec& s) { return to_python(s.size); })
      .def_prop_ro("stride", [](const KernelSpec& s) { return to_python(s.stride); })
      .def_prop_ro("padding", [](const KernelSpec& s) { return to_python(s.padding); })
      .def_prop_ro("dilation", [](const KernelSpec& s) { return to_python(s.dilation); })
      .def_prop_ro("volume", &KernelSpec::volume)
      .def_prop_ro("is_pointwise", &KernelSpec::is_pointwise)
      .def_prop_ro("is_centered_submanifold", &KernelSpec::is_centered_submanifold)
      .def("__repr__", [](const KernelSpec& s) { return "KernelSpec(" + s.text() + ")"; });
  def_frozen(spec, [](const KernelSpec& s) {
    return nb::make_tuple(to_python(s.size), to_python(s.stride), to_python(s.padding),
                          to_python(s.dilation));
  });

  nb::class_<CoordinateMapKey> key(m, "CoordinateMapKey",
                                   "The name of a coordinate set in a manager.");
  key.def(
      "__init__",
      [](CoordinateMapKey* self, int64_t id, const nb::object& stride, int64_t manager_id) {
        new (self) CoordinateMapKey{id, triple(stride, "CoordinateMapKey", "stride"), manager_id};
      },
      "id"_a, "stride"_a, "manager_id"_a);
  key.def_ro("id", &CoordinateMapKey::id)
      .def_prop_ro("stride", [](const CoordinateMapKey& k) { return to_python(k.stride); })
      .def_ro("manager_id", &CoordinateMapKey::manager_id)
      .def("__repr__", [](const CoordinateMapKey& k) {
        return "CoordinateMapKey(id=" + std::to_string(k.id) + ", stride=" + triple_text(k.stride) +
               ", manager_id=" + std::to_string(k.manager_id) + ")";
      });
  def_frozen(key, [](const CoordinateMapKey& k) {
    return nb::make_tuple(k.id, to_python(k.stride), k.manager_id);
  });
}

// Arrays are returned as copies: writing to one, also through a NumPy view, does not reach the
// relation.
template <typename T>
auto copy_of(mx::array T::* member) {
  return [member](const T& self) { return private_copy(self.*member); };
}

void bind_views(nb::module_& m) {
  nb::class_<Edges>(
      m, "Edges",
      "Edge e joins input row in_rows[e] and output row out_rows[e] with offset kernel_ids[e].")
      .def_prop_ro("in_rows", copy_of(&Edges::in_rows))
      .def_prop_ro("out_rows", copy_of(&Edges::out_rows))
      .def_prop_ro("kernel_ids", copy_of(&Edges::kernel_ids));
  nb::class_<EdgeGroups>(m, "EdgeCsr",
                         "Edges of group g: edge_ids[row_offsets[g]:row_offsets[g + 1]].")
      .def_prop_ro("row_offsets", copy_of(&EdgeGroups::row_offsets))
      .def_prop_ro("edge_ids", copy_of(&EdgeGroups::edge_ids));
  nb::class_<ImplicitGemm>(
      m, "ImplicitGemm",
      "Input row of each (output row, offset), -1 = none, and the mask of a row.")
      .def_prop_ro("out_in_map", copy_of(&ImplicitGemm::out_in_map))
      .def_prop_ro("row_masks", copy_of(&ImplicitGemm::row_masks));
  using Sorted = SortedImplicitGemm;
  nb::class_<Sorted>(m, "SortedImplicitGemm", "The same with rows stably sorted by mask.")
      .def_prop_ro("sorted_out_in_map", &Sorted::sorted_out_in_map)
      .def_prop_ro("sorted_kv_out_in_map", copy_of(&Sorted::sorted_kv_out_in_map))
      .def_prop_ro("reorder_rows", copy_of(&Sorted::reorder_rows))
      .def_prop_ro(
          "tile_masks",
          [](const Sorted& self) {
            const int words = static_cast<int>(self.tile_masks.size());
            return new_array(words ? self.tile_masks.data<void>() : nullptr, {words},
                             self.tile_masks.dtype());
          },
          "(4 * tiles,): per 64 sorted rows four words, each the OR of 16 row masks.");
  nb::class_<cpu::Coverage>(m, "Coverage",
                            "Input rows that reach no output, output rows without an edge.")
      .def_ro("unused_inputs", &cpu::Coverage::unused_inputs)
      .def_ro("empty_outputs", &cpu::Coverage::empty_outputs)
      .def("__repr__", [](const cpu::Coverage& c) {
        return "Coverage(unused_inputs=" + std::to_string(c.unused_inputs) +
               ", empty_outputs=" + std::to_string(c.empty_outputs) + ")";
      });
}

// Rows of an optional argument of KernelRelation.
int64_t rows_of(const nb::object& value, const char* argument) {
  const Py_ssize_t n = PyObject_Length(value.ptr());
  if (n >= 0) return n;
  PyErr_Clear();
  throw TypeError("[KernelRelation] " + std::string(argument) + ": found " +
                  nb::cast<std::string>(nb::str(value.type().attr("__name__"))) +
                  ", expected rows: an array or a list of triples");
}

void bind_relation(nb::module_& m) {
  const auto view = Unlocked();
  nb::class_<Relation>(m, "KernelRelation",
                       "A set of edges (input row, output row, kernel offset). Views are built on "
                       "first use and kept.",
                       nb::dynamic_attr())
      .def(
          nb::new_([](const Given& in_rows, const Given& out_rows, const Given& kernel_ids,
                      nb::object n_in, nb::object n_out, nb::object n_kernels,
                      const nb::object& kernel_offsets, const nb::object& out_coords,
                      const nb::object& n_in_capacity, const nb::object& n_out_capacity) {
            const char* name = "KernelRelation";
            // The older names say the same: rows of the input, of the coordinates, of the offsets.
            n_in = given_once(n_in, n_in_capacity, name, "n_in");
            n_out = given_once(n_out, n_out_capacity, name, "n_out");
            if (n_out.is_none() && !out_coords.is_none())
              n_out = nb::int_(rows_of(out_coords, "out_coords"));
            if (n_kernels.is_none() && !kernel_offsets.is_none())
              n_kernels = nb::int_(rows_of(kernel_offsets, "kernel_offsets"));
            const int64_t in = integer(n_in, name, "n_in"), out = integer(n_out, name, "n_out");
            const int64_t k = integer(n_kernels, name, "n_kernels");
            if (!out_coords.is_none() && rows_of(out_coords, "out_coords") != out)
              throw std::invalid_argument(
                  "[KernelRelation] out_coords must have n_out = " + std::to_string(out) + " rows");
            if (!kernel_offsets.is_none() && rows_of(kernel_offsets, "kernel_offsets") != k)
              throw std::invalid_argument("[KernelRelation] kernel_offsets must have n_kernels = " +
                                          std::to_string(k) + " rows");
            std::shared_ptr<Relation> made;
            {
              Release release;
              made = Relation::from_edges(*in_rows, *out_rows, *kernel_ids, in, out, k);
            }
            nb::object self = nb::cast(made);
            if (!out_coords.is_none()) self.attr("_out_coords") = out_coords;
            if (!kernel_offsets.is_none()) self.attr("_kernel_offsets") = kernel_offsets;
            return self;
          }),
          "in_rows"_a, "out_rows"_a, "kernel_ids"_a, nb::kw_only(), "n_in"_a = nb::none(),
          "n_out"_a = nb::none(), "n_kernels"_a = nb::none(), "kernel_offsets"_a = nb::none(),
          "out_coords"_a = nb::none(), "n_in_capacity"_a = nb::none(),
          "n_out_capacity"_a = nb::none())
      .def_prop_ro("kind", [](const Relation& r) { return std::string(kind_name(r.kind())); })
      .def_prop_ro("spec", &Relation::spec)
      .def_prop_ro("n_in", &Relation::n_in)
      .def_prop_ro("n_out", &Relation::n_out)
      .def_prop_ro("n_kernels", &Relation::n_kernels)
      .def_prop_ro("edge_count", &Relation::edge_count)
      .def_prop_ro("out_count", &Relation::n_out)
      .def_prop_ro("counts",
                   [](const Relation& r) {
                     const int64_t counts[] = {r.edge_count(), r.n_out()};
                     const bool small = r.edge_count() <= INT32_MAX;
                     const int32_t narrow[] = {static_cast<int32_t>(counts[0]),
                                               static_cast<int32_t>(counts[1])};
                     return small ? new_array(narrow, {2}, mx::int32)
                                  : new_array(counts, {2}, mx::int64);
                   })
      .def_prop_ro("out_coords",
                   [](nb::handle self) -> nb::object {
                     const auto& r = nb::cast<const Relation&>(self);
                     if (r.has_out_coords()) return nb::cast(r.out_coords().python_array());
                     return nb::getattr(self, "_out_coords", nb::none());
                   })
      .def_prop_ro("out_key", &Relation::out_key)
      .def_prop_ro("kernel_offsets",
                   [](nb::handle self) -> nb::object {
                     return nb::getattr(self, "_kernel_offsets",
                                        triples(nb::cast<const Relation&>(self).offsets()));
                   })
      .def_prop_ro("is_reversed", &Relation::is_reversed)
      .def_prop_ro("edges", &Relation::edges, nb::rv_policy::reference_internal, view)
      .def_prop_ro("output_csr", &Relation::output_csr, nb::rv_policy::reference_internal, view)
      .def_prop_ro("input_csr", &Relation::input_csr, nb::rv_policy::reference_internal, view)
      .def_prop_ro("kernel_csr", &Relation::kernel_csr, nb::rv_policy::reference_internal, view)
      .def_prop_ro("implicit_gemm", &Relation::implicit_gemm, nb::rv_policy::reference_internal,
                   view)
      .def_prop_ro("sorted_implicit_gemm", &Relation::sorted_implicit_gemm,
                   nb::rv_policy::reference_internal, view)
      .def("coverage", &Relation::coverage, view)
      .def("reversed", &Relation::reversed, view, "Ends swapped; arrays are shared.")
      .def_prop_ro("nbytes", &Relation::nbytes)
      .def("__repr__", &Relation::text);
}

// The functions: In is an array or a tensor, To what its target may be.
template <typename In>
using Builder = Relation::Ptr (*)(const In&, const KernelSpec&, mx::StreamOrDevice);
template <typename In, typename To>
using TargetBuilder = Relation::Ptr (*)(const In&, const To&, const KernelSpec&,
                                        mx::StreamOrDevice);

template <typename In>
void def_builder(nb::module_& m, const char* name, Builder<In> build, const char* in, int size,
                 int stride) {
  m.def(
      name,
      [name, build](const In& x, const nb::object& kernel, const nb::object& step,
                    const nb::object& padding, const nb::object& dilation, mx::StreamOrDevice s) {
        const KernelSpec spec = kernel_spec(name, kernel, step, padding, dilation);
        Release release;
        return build(x, spec, s);
      },
      nb::arg(in), "kernel_size"_a = size, "stride"_a = stride, "padding"_a = 0, "dilation"_a = 1,
      nb::kw_only(), "stream"_a = nb::none());
}

template <typename In>
void def_submanifold(nb::module_& m, const char* name, Builder<In> build, const char* in) {
  m.def(
      name,
      [name, build](const In& x, const nb::object& kernel, const nb::object& dilation,
                    mx::StreamOrDevice s) {
        const KernelSpec spec = kernel_spec(name, kernel, nb::int_(1), nb::int_(0), dilation);
        Release release;
        return build(x, spec, s);
      },
      nb::arg(in), "kernel_size"_a = 3, "dilation"_a = 1, nb::kw_only(), "stream"_a = nb::none());
}

template <typename In>
void def_generative(nb::module_& m, const char* name, Builder<In> build, const char* in) {
  m.def(
      name,
      [name, build](const In& x, const nb::object& kernel, const nb::object& stride,
                    mx::StreamOrDevice s) {
        const KernelSpec spec = kernel_spec(name, kernel, stride, nb::int_(0), nb::int_(1));
        Release release;
        return build(x, spec, s);
      },
      nb::arg(in), "kernel_size"_a = 2, "stride"_a = 2, nb::kw_only(), "stream"_a = nb::none());
}

template <typename In, typename To>
void def_target(nb::module_& m, const char* name, TargetBuilder<In, To> build, const char* in,
                const char* to, int size, int stride) {
  m.def(
      name,
      [name, build](const In& x, const To& target, const nb::object& kernel, const nb::object& step,
                    const nb::object& padding, const nb::object& dilation, mx::StreamOrDevice s) {
        const KernelSpec spec = kernel_spec(name, kernel, step, padding, dilation);
        Release release;
        return build(x, target, spec, s);
      },
      nb::arg(in), nb::arg(to), "kernel_size"_a = size, "stride"_a = stride, "padding"_a = 0,
      "dilation"_a = 1, nb::kw_only(), "stream"_a = nb::none());
}

}  // namespace

void bind_relations(nb::module_& m) {
  bind_values(m);
  bind_views(m);
  bind_relation(m);
  m.def(
      "kernel_offsets",
      [](const nb::object& size, const nb::object& dilation, bool centered) {
        return triples(kernel_offsets(triple(size, "kernel_offsets", "kernel_size"),
                                      triple(dilation, "kernel_offsets", "dilation"), centered));
      },
      "kernel_size"_a = 3, "dilation"_a = 1, "centered"_a = true,
      "Offsets in id order. Centered: an odd size is centered on 0; otherwise from 0.");
  def_builder<mx::array>(m, "build_kernel_relation", &build_kernel_relation, "coords", 3, 1);
  def_submanifold<mx::array>(m, "build_submanifold_kernel_relation",
                             &build_submanifold_kernel_relation, "coords");
  def_builder<mx::array>(m, "build_transposed_kernel_relation", &build_transposed_kernel_relation,
                         "coords", 2, 2);
  def_generative<mx::array>(m, "build_generative_relation", &build_generative_relation, "coords");
  def_target<mx::array, mx::array>(m, "build_target_kernel_relation", &build_target_kernel_relation,
                                   "coords", "target_coords", 3, 1);
  def_target<mx::array, mx::array>(m, "build_target_transposed_relation",
                                   &build_target_transposed_relation, "coords", "target_coords", 2,
                                   2);
  def_builder<SparseTensor>(m, "kernel_relation", &kernel_relation, "x", 3, 1);
  def_submanifold<SparseTensor>(m, "submanifold_kernel_relation", &submanifold_kernel_relation,
                                "x");
  def_builder<SparseTensor>(m, "transposed_kernel_relation", &transposed_kernel_relation, "x", 2,
                            2);
  def_generative<SparseTensor>(m, "generative_kernel_relation", &generative_kernel_relation, "x");
  def_target<SparseTensor, TargetCoords>(m, "target_kernel_relation", &target_kernel_relation, "x",
                                         "target", 3, 1);
  def_target<SparseTensor, TargetCoords>(m, "target_transposed_kernel_relation",
                                         &target_transposed_kernel_relation, "x", "target", 2, 2);
}
