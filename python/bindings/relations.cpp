// KernelSpec, CoordinateMapKey, KernelRelation and the functions that build relations.
#include "lattice/ops/relations.h"

#include <nanobind/operators.h>

#include "arguments.h"
#include "bind.h"
#include "identity.h"
#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Offset = nb::typed<nb::tuple, int, int, int>;
using Offsets = nb::typed<nb::tuple, Offset, nb::ellipsis>;

Offsets triples(const std::vector<Triple>& values) {
  nb::list out;
  for (const Triple& t : values) out.append(to_python(t));
  return Offsets(nb::tuple(out));
}

// Frozen values: equality, hash and pickling by the tuple of fields.
template <typename T, typename Fields>
void def_frozen(nb::class_<T>& c, Fields fields) {
  c.def(nb::self == nb::self, nb::sig("def __eq__(self, arg: object, /) -> bool"));
  c.def("__hash__", [fields](const T& self) { return nb::hash(fields(self)); });
  c.def(
      "__reduce__",
      [fields](nb::handle self) {
        return nb::make_tuple(self.type(), fields(nb::cast<const T&>(self)));
      },
      nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"));
}

void bind_values(nb::module_& m) {
  nb::class_<KernelSpec> spec(
      m, "KernelSpec",
      R"(Size, stride, padding and dilation of a kernel: integers, or one per axis (x, y, z).

Frozen and hashable. Sizes, strides and dilations are at least 1; padding may be negative. It is
accepted wherever a function takes kernel_size, and then gives all four.

>>> from mlx_lattice import core
>>> core.KernelSpec(3, 2).volume, core.KernelSpec(3) == core.KernelSpec((3, 3, 3))
(27, True))");
  def_init(
      spec,
      [](const Triple& size, const Triple& stride, const Triple& padding, const Triple& dilation) {
        return KernelSpec(size, stride, padding, dilation);
      },
      "size"_a = 3, "stride"_a = 1, "padding"_a = 0, "dilation"_a = 1);
  spec.def_prop_ro("size", [](const KernelSpec& s) { return to_python(s.size); })
      .def_prop_ro("stride", [](const KernelSpec& s) { return to_python(s.stride); })
      .def_prop_ro("padding", [](const KernelSpec& s) { return to_python(s.padding); })
      .def_prop_ro("dilation", [](const KernelSpec& s) { return to_python(s.dilation); })
      .def_prop_ro("volume", &KernelSpec::volume, "The number of offsets, Kx * Ky * Kz.")
      .def_prop_ro("is_pointwise", &KernelSpec::is_pointwise,
                   "Whether size, stride and dilation are 1 and padding is 0.")
      .def_prop_ro("is_centered_submanifold", &KernelSpec::is_centered_submanifold,
                   "Whether the sizes are odd, stride is 1 and padding is 0.")
      .def("__repr__", [](const KernelSpec& s) { return "KernelSpec(" + s.text() + ")"; });
  def_frozen(spec, [](const KernelSpec& s) {
    return nb::make_tuple(to_python(s.size), to_python(s.stride), to_python(s.padding),
                          to_python(s.dilation));
  });

  nb::class_<CoordinateMapKey> key(m, "CoordinateMapKey",
                                   "The name of a coordinate set in its manager, with its stride. "
                                   "Tensors with equal keys share their coordinates.");
  def_init(
      key,
      [](int64_t id, const Triple& stride, int64_t manager_id) {
        return CoordinateMapKey{id, stride, manager_id};
      },
      "id"_a, "stride"_a, "manager_id"_a);
  key.def_ro("id", &CoordinateMapKey::id, "The number of the set in its manager.")
      .def_prop_ro("stride", [](const CoordinateMapKey& k) { return to_python(k.stride); })
      .def_ro("manager_id", &CoordinateMapKey::manager_id, "The number of the manager.")
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
  return [member](const T& self) { return ArrayObject(one_copy(self.*member)); };
}

void bind_views(nb::module_& m) {
  nb::class_<Edges>(
      m, "Edges",
      "Edge e joins input row in_rows[e] and output row out_rows[e] with offset kernel_ids[e].")
      .def_prop_ro("in_rows", copy_of(&Edges::in_rows))
      .def_prop_ro("out_rows", copy_of(&Edges::out_rows))
      .def_prop_ro("kernel_ids", copy_of(&Edges::kernel_ids))
      .def_prop_ro(
          "capacity", [](const Edges& e) { return e.in_rows.size(); }, "The number of edges.");
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
  nb::class_<Coverage>(m, "Coverage",
                       "Input rows that reach no output, output rows without an edge.")
      .def_ro("unused_inputs", &Coverage::unused_inputs)
      .def_ro("empty_outputs", &Coverage::empty_outputs)
      .def("__repr__", [](const Coverage& c) {
        return "Coverage(unused_inputs=" + std::to_string(c.unused_inputs) +
               ", empty_outputs=" + std::to_string(c.empty_outputs) + ")";
      });
}

// Rows of an optional argument of KernelRelation.
std::optional<int64_t> rows_of(const nb::object& value, const char* argument) {
  if (value.is_none()) return std::nullopt;
  const Py_ssize_t n = PyObject_Length(value.ptr());
  if (n >= 0) return n;
  PyErr_Clear();
  wrong_kind(value, {"KernelRelation", argument}, "rows: an array or a list of triples");
}

void check_rows(const std::optional<int64_t>& found, int64_t wanted, const char* argument,
                const char* number) {
  if (found && *found != wanted)
    throw std::invalid_argument("[KernelRelation] " + std::string(argument) + " must have " +
                                number + " = " + std::to_string(wanted) + " rows");
}

}  // namespace

// Kept as it is, and shown again by the relation.
template <>
struct Argument<nb::object> {
  static constexpr auto Name = nb::detail::const_name("ArrayLike | None");
  static nb::object from(nb::handle value, At) { return nb::borrow(value); }
};

namespace {

using Count = std::optional<int64_t>;

// A number under its name and under that of the older package.
struct TwoNames {
  const Count &value, &older;
};

nb::object relation_of_edges(const Edges& edges, const TwoNames& n_in, const TwoNames& n_out,
                             const Count& n_kernels, const nb::object& offsets,
                             const nb::object& out_coords) {
  const char* name = "KernelRelation";
  const size_t rows = edges.in_rows.size();
  if (rows != edges.out_rows.size() || rows != edges.kernel_ids.size())
    throw std::invalid_argument(
        "[KernelRelation] in_rows, out_rows and kernel_ids must have the same row count, got " +
        std::to_string(rows) + ", " + std::to_string(edges.out_rows.size()) + " and " +
        std::to_string(edges.kernel_ids.size()));
  const auto coords = rows_of(out_coords, "out_coords"),
             kernels = rows_of(offsets, "kernel_offsets");
  const int64_t k =
      n_kernels || !kernels ? given_once(n_kernels, std::nullopt, {name, "n_kernels"}) : *kernels;
  check_rows(kernels, k, "kernel_offsets", "n_kernels");
  // The older names say the same: rows of the input, of the coordinates, of the offsets.
  const int64_t in = given_once(n_in.value, n_in.older, {name, "n_in"});
  const int64_t out = n_out.value || n_out.older || !coords
                          ? given_once(n_out.value, n_out.older, {name, "n_out"})
                          : *coords;
  check_rows(coords, out, "out_coords", "n_out");
  const std::shared_ptr<Relation> made = unlocked([&] {
    return Relation::from_edges(edges.in_rows, edges.out_rows, edges.kernel_ids, in, out, k);
  });
  nb::object self = nb::cast(made);
  if (coords) self.attr("_out_coords") = out_coords;
  if (kernels) self.attr("_kernel_offsets") = offsets;
  return self;
}

mx::array counts_of(const Relation& r) {
  const int64_t counts[] = {r.edge_count(), r.n_out()};
  const int32_t narrow[] = {static_cast<int32_t>(counts[0]), static_cast<int32_t>(counts[1])};
  return r.edge_count() <= INT32_MAX ? new_array(narrow, {2}, mx::int32)
                                     : new_array(counts, {2}, mx::int64);
}

constexpr const char* kRelationHelp =
    R"(A set of edges (input row, output row, kernel offset). Views are built on first use and kept.

Operations build relations and the manager of a tensor keeps them; a relation can also be made of
edges, which are checked: equal lengths, and rows and offsets in range (ValueError).

Args:
    in_rows, out_rows, kernel_ids: Input row, output row and offset of each edge, integers (E,).
    n_in, n_out, n_kernels: How many input rows, output rows and offsets there are.
    kernel_offsets: Offsets (x, y, z) in id order; then n_kernels may be left out.
    out_coords: Coordinates of the output rows; then n_out may be left out.
    n_in_capacity, n_out_capacity: Older names of n_in and n_out.

>>> from mlx_lattice import ops, samples
>>> r = ops.kernel_relation(samples.tensor(), 2, 2)
>>> r.kind, r.n_in, r.n_out, r.edge_count
('forward', 6, 4, 6)
>>> r.coverage()
Coverage(unused_inputs=0, empty_outputs=0))";

// Attributes with the names of the older package.
void def_older_names(nb::class_<Relation>& c) {
  const auto view = Unlocked();
  const auto inside = nb::rv_policy::reference_internal;
  c.def_prop_ro("out_view", &Relation::output_csr, inside, view, "output_csr.")
      .def_prop_ro("in_view", &Relation::input_csr, inside, view, "input_csr.")
      .def_prop_ro("kernel_view", &Relation::kernel_csr, inside, view, "kernel_csr.")
      .def("require_implicit_gemm", &Relation::implicit_gemm, inside, view, "implicit_gemm.")
      .def("require_sorted_implicit_gemm", &Relation::sorted_implicit_gemm, inside, view,
           "sorted_implicit_gemm.")
      .def_prop_ro("n_in_capacity", &Relation::n_in, "n_in.")
      .def_prop_ro("n_out_capacity", &Relation::n_out, "n_out.")
      .def_prop_ro("edge_capacity", &Relation::edge_count, "edge_count.")
      .def_prop_ro(
          "contract",
          [](const Relation& r) {
            const nb::object compat = nb::module_::import_("mlx_lattice.compat");
            return compat.attr("SparseRelationContract")(
                compat.attr("RelationKind")(kind_name(r.kind())), r.n_in(), r.n_out(),
                r.n_kernels(), r.edge_count());
          },
          nb::sig("def contract(self) -> SparseRelationContract"), "The sizes as one value.");
  const auto array_of = [&](const char* name, auto view_of, mx::array EdgeGroups::* member,
                            const char* doc) {
    c.def_prop_ro(
        name,
        [view_of, member](const Relation& r) {
          return ArrayObject(
              one_copy(unlocked([&]() -> const EdgeGroups& { return (r.*view_of)(); }).*member));
        },
        doc);
  };
  array_of("row_offsets", &Relation::output_csr, &EdgeGroups::row_offsets, "Of output_csr.");
  array_of("in_row_offsets", &Relation::input_csr, &EdgeGroups::row_offsets, "Of input_csr.");
  array_of("in_edge_ids", &Relation::input_csr, &EdgeGroups::edge_ids, "Of input_csr.");
  array_of("kernel_row_offsets", &Relation::kernel_csr, &EdgeGroups::row_offsets, "Of kernel_csr.");
  array_of("kernel_edge_ids", &Relation::kernel_csr, &EdgeGroups::edge_ids, "Of kernel_csr.");
}

void def_of_edges(nb::class_<Relation>& c) {
  def_new(
      c,
      [](const mx::array& in_rows, const mx::array& out_rows, const mx::array& kernel_ids,
         const Count& n_in, const Count& n_out, const Count& n_kernels, const nb::object& offsets,
         const nb::object& out_coords, const Count& n_in_capacity, const Count& n_out_capacity) {
        return relation_of_edges({in_rows, out_rows, kernel_ids}, {n_in, n_in_capacity},
                                 {n_out, n_out_capacity}, n_kernels, offsets, out_coords);
      },
      "in_rows"_a, "out_rows"_a, "kernel_ids"_a, nb::kw_only(), "n_in"_a = nb::none(),
      "n_out"_a = nb::none(), "n_kernels"_a = nb::none(), "kernel_offsets"_a = nb::none(),
      "out_coords"_a = nb::none(), "n_in_capacity"_a = nb::none(), "n_out_capacity"_a = nb::none());
}

void bind_relation(nb::module_& m) {
  const auto view = Unlocked();
  const auto inside = nb::rv_policy::reference_internal;
  nb::class_<Relation> c(m, "KernelRelation", kRelationHelp, nb::dynamic_attr());
  def_of_edges(c);
  c.def_prop_ro(
       "kind", [](const Relation& r) { return std::string(kind_name(r.kind())); },
       "forward, target, submanifold, transposed, generative, target_transposed or custom.")
      .def_prop_ro("spec", &Relation::spec, "The kernel.")
      .def_prop_ro("n_in", &Relation::n_in, "Input rows.")
      .def_prop_ro("n_out", &Relation::n_out, "Output rows.")
      .def_prop_ro("n_kernels", &Relation::n_kernels, "Kernel offsets.")
      .def_prop_ro("edge_count", &Relation::edge_count, "Edges.")
      .def_prop_ro("out_count", &Relation::n_out, "Output rows.")
      .def_prop_ro("counts", &counts_of, "[edges, output rows] as an array.")
      .def_prop_ro(
          "out_coords",
          [](nb::handle self) -> nb::object {
            const auto& r = nb::cast<const Relation&>(self);
            if (r.has_out_coords()) return remembered(r.out_coords());
            return nb::getattr(self, "_out_coords", nb::none());
          },
          nb::sig("def out_coords(self) -> mlx.core.array | None"),
          "Coordinates of the output rows, (n_out, 4), or None.")
      .def_prop_ro("out_key", &Relation::out_key, "The key of the output coordinates, or None.")
      .def_prop_ro(
          "kernel_offsets",
          [](nb::handle self) -> nb::object {
            return nb::getattr(self, "_kernel_offsets",
                               triples(nb::cast<const Relation&>(self).offsets()));
          },
          nb::sig("def kernel_offsets(self) -> tuple[tuple[int, int, int], ...]"),
          "The offsets (x, y, z) in id order.")
      .def_prop_ro("is_reversed", &Relation::is_reversed, "Whether the ends are swapped.")
      .def_prop_ro("edges", &Relation::edges, inside, view, "The edges as three arrays.")
      .def_prop_ro("output_csr", &Relation::output_csr, inside, view, "Edges by output row.")
      .def_prop_ro("input_csr", &Relation::input_csr, inside, view, "Edges by input row.")
      .def_prop_ro("kernel_csr", &Relation::kernel_csr, inside, view, "Edges by offset.")
      .def_prop_ro("implicit_gemm", &Relation::implicit_gemm, inside, view,
                   "The input row of each (output row, offset).")
      .def_prop_ro("sorted_implicit_gemm", &Relation::sorted_implicit_gemm, inside, view,
                   "The same with rows sorted by their mask; at most 32 offsets.")
      .def("coverage", &Relation::coverage, view,
           "How many input rows reach no output, and how many output rows have no edge.")
      .def("reversed", &Relation::reversed, view, "Ends swapped; arrays are shared.")
      .def_prop_ro("nbytes", &Relation::nbytes, "Bytes of the edges and of the views.")
      .def("__repr__", &Relation::text)
      .def(
          "_repr_html_",
          [](nb::handle self) {
            return nb::module_::import_("mlx_lattice.viewer.notebook")
                .attr("kernel_relation")(self);
          },
          nb::sig("def _repr_html_(self) -> str"));
  def_older_names(c);
}

// One name per kind: In is an array or a tensor, To what its target may be.
using By = const Triple&;  // stride, padding or dilation
using Stream = mx::StreamOrDevice;

template <typename In>
void def_builder(nb::module_& m, const char* name, RelationKind kind, const char* in) {
  def(
      m, name,
      [name, kind](const In& x, const KernelSize& size, By stride, By padding, By dilation,
                   Stream s) {
        const KernelSpec spec = kernel_spec(name, size, stride, padding, dilation);
        return relation(kind, x, spec, std::nullopt, s, name);
      },
      nb::arg(in), "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a, "stream"_a, Unlocked());
}

mx::array plain(const Given& a) { return a; }
TargetCoords plain(const TargetCoords& target) { return target; }

template <typename In, typename To>
void def_target(nb::module_& m, const char* name, RelationKind kind, const char* in,
                const char* to) {
  def(
      m, name,
      [name, kind](const In& x, const To& target, const KernelSize& size, By stride, By padding,
                   By dilation, Stream s) {
        const KernelSpec spec = kernel_spec(name, size, stride, padding, dilation);
        return relation(kind, x, spec, plain(target), s, name);
      },
      nb::arg(in), nb::arg(to), "kernel_size"_a, "stride"_a, "padding"_a, "dilation"_a, "stream"_a,
      Unlocked());
}

}  // namespace

void bind_relations(nb::module_& m) {
  bind_values(m);
  bind_views(m);
  bind_relation(m);
  def(
      m, "kernel_offsets",
      [](const Triple& size, const Triple& dilation, bool centered) {
        return triples(kernel_offsets(size, dilation, centered));
      },
      "kernel_size"_a, "dilation"_a, "centered"_a);
  using Array = Given;
  using Kind = RelationKind;
  def_builder<Array>(m, "build_kernel_relation", Kind::forward, "coords");
  def_builder<Array>(m, "build_submanifold_kernel_relation", Kind::submanifold, "coords");
  def_builder<Array>(m, "build_transposed_kernel_relation", Kind::transposed, "coords");
  def_builder<Array>(m, "build_generative_relation", Kind::generative, "coords");
  def_target<Array, Array>(m, "build_target_kernel_relation", Kind::target, "coords",
                           "target_coords");
  def_target<Array, Array>(m, "build_target_transposed_relation", Kind::target_transposed, "coords",
                           "target_coords");
  def_builder<SparseTensor>(m, "kernel_relation", Kind::forward, "x");
  def_builder<SparseTensor>(m, "submanifold_kernel_relation", Kind::submanifold, "x");
  def_builder<SparseTensor>(m, "transposed_kernel_relation", Kind::transposed, "x");
  def_builder<SparseTensor>(m, "generative_kernel_relation", Kind::generative, "x");
  def_target<SparseTensor, TargetCoords>(m, "target_kernel_relation", Kind::target, "x", "target");
  def_target<SparseTensor, TargetCoords>(m, "target_transposed_kernel_relation",
                                         Kind::target_transposed, "x", "target");
}
