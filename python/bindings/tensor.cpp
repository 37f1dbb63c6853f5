// SparseTensor and SparseTensorComponents.
#include "arguments.h"
#include "bind.h"
#include "identity.h"
#include "lattice/core/dense.h"
#include "lattice/core/sparse_tensor.h"
#include "lattice/ops/algebra.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Parts = SparseTensorComponents;
using X = const SparseTensor&;
using Optional = const std::optional<mx::array>&;
using Key = const std::optional<CoordinateMapKey>&;
using Manager = const std::optional<ManagerPtr>&;
using Counts = const std::optional<BatchCounts>&;

std::optional<IntTuple> counts_tuple(Counts counts) {
  if (!counts) return std::nullopt;
  return to_python(*counts);
}

Parts parts(const mx::array& coords, const mx::array& feats, const Triple& stride, Key key,
            Manager manager, Counts counts, Optional active_rows) {
  return {coords, feats, stride, counts, active_rows, key, manager.value_or(nullptr)};
}

void bind_components(nb::module_& m) {
  nb::class_<Parts> c(m, "SparseTensorComponents",
                      R"(What a SparseTensor is made of, as plain data.

>>> import mlx_lattice as ml
>>> x = ml.samples.tensor()
>>> ml.SparseTensor.from_components(x.export_components()).same_coords(x)
True)");
  def_init(c, &parts, "coords"_a, "feats"_a, "stride"_a = 1, nb::kw_only(),
           "coord_key"_a = nb::none(), "coord_manager"_a = nb::none(),
           "batch_counts"_a = nb::none(), "active_rows"_a = nb::none());
  c.def_prop_ro("coords", [](const Parts& p) { return mx::array(p.coords); })
      .def_prop_ro("feats", [](const Parts& p) { return mx::array(p.feats); })
      .def_prop_ro("stride", [](const Parts& p) { return to_python(p.stride); })
      .def_prop_ro("batch_counts", [](const Parts& p) { return counts_tuple(p.batch_counts); })
      .def_prop_ro("active_rows",
                   [](const Parts& p) { return std::optional<mx::array>(p.active_rows); })
      .def_prop_ro("coord_key", [](const Parts& p) { return p.coord_key; })
      .def_prop_ro("coord_manager", [](const Parts& p) { return p.coord_manager; });
}

constexpr const char* kHelp =
    R"(Feature rows at lattice coordinates (batch, x, y, z). Immutable; features stay lazy.

Tensors that are computed from each other share coordinates: they have one manager and one key, and
are added without a join. Equal values in two arrays are not identity.

+ and - join the rows of both tensors, * and & keep the common ones; with a number or an array of
shape (C,), (N, 1) or (N, C) they work on the features, and so do /, **, and comparisons.

Args:
    coords: (N, 4) int32 or int64, rows (batch, x, y, z), each at most once.
    feats: (N, C) float32, float16 or bfloat16.
    stride: Step of the lattice in units of the finest one; one integer or one per axis.
    coord_key: The key of coords in coord_manager; then coords must be the manager's own array.
    coord_manager: The manager that owns the coordinates; by default a new one.
    batch_counts: Rows of each batch item, if batch items follow each other.
    active_rows: An array (1,): only that many leading rows are kept.

Raises ValueError for shapes, dtypes and counts that do not fit; the message names the cure.

>>> import mlx_lattice as ml
>>> x = ml.SparseTensor([[0, 0, 0, 0], [0, 1, 0, 0]], [[1.0], [2.0]])
>>> (x + x).feats.tolist(), (2 * x).same_coords(x), len(x)
([[2.0], [4.0]], True, 2))";

// How two values are combined by Python, as a + b and a > b are.
using Combine = PyObject* (*)(PyObject*, PyObject*);
constexpr Combine kPower = [](PyObject* a, PyObject* b) { return PyNumber_Power(a, b, Py_None); };
template <int comparison>
constexpr Combine kCompare =
    [](PyObject* a, PyObject* b) { return PyObject_RichCompare(a, b, comparison); };

nb::object not_implemented() { return nb::borrow(Py_NotImplemented); }

// The features combined with a number or an array; the result must keep their shape.
nb::object with_value(X x, nb::handle other, Combine combine, bool swapped) {
  const bool numpy = nb::cast<std::string>(nb::str(other.type().attr("__module__"))) == "numpy";
  const bool number = nb::isinstance<nb::int_>(other) || nb::isinstance<nb::float_>(other);
  if (!numpy && !number && !instance<mx::array>(other)) return not_implemented();
  const nb::object feats = nb::cast(x.feats());
  const nb::object value =
      numpy ? nb::cast(array(other, {"SparseTensor", "the other operand"})) : nb::borrow(other);
  PyObject* made = swapped ? combine(value.ptr(), feats.ptr()) : combine(feats.ptr(), value.ptr());
  if (!made) throw nb::python_error();
  const auto result = nb::cast<mx::array>(nb::steal(made));
  if (result.shape() != x.feats().shape())
    throw std::invalid_argument(
        "[SparseTensor] the other operand does not broadcast to " +
        nb::cast<std::string>(nb::str(nb::tuple(feats.attr("shape")))) + ": the result has shape " +
        nb::cast<std::string>(nb::str(nb::tuple(nb::cast(result).attr("shape")))) +
        "; give a number or an array of shape (C,), (N, 1) or (N, C)");
  return nb::cast(x.with_feats(result));
}

using Join2 = std::optional<std::pair<BinaryOp, Join>>;

void def_operator(nb::class_<SparseTensor>& c, const char* name, Combine combine, Join2 join = {},
                  bool swapped = false) {
  const std::string signature = "def " + std::string(name) +
                                "(self, other: " + (join || !swapped ? "SparseTensor | " : "") +
                                "float | ArrayLike, /) -> SparseTensor";
  c.def(
      name,
      [=](X x, nb::handle other) -> nb::object {
        const auto* tensor = instance<SparseTensor>(other);
        if (!tensor) return with_value(x, other, combine, swapped);
        if (join)
          return nb::cast(
              unlocked([&] { return sparse_binary(x, *tensor, join->first, join->second); }));
        if (!x.same_coords(*tensor)) return not_implemented();
        const nb::object a = nb::cast(x.feats()), b = nb::cast(tensor->feats());
        PyObject* made = swapped ? combine(b.ptr(), a.ptr()) : combine(a.ptr(), b.ptr());
        if (!made) throw nb::python_error();
        return nb::cast(x.with_feats(nb::cast<mx::array>(nb::steal(made))));
      },
      nb::is_operator(), nb::sig(signature.c_str()));
}

void def_operators(nb::class_<SparseTensor>& c) {
  const Join2 add{{BinaryOp::add, Join::outer}}, sub{{BinaryOp::sub, Join::outer}},
      mul{{BinaryOp::mul, Join::inner}};
  def_operator(c, "__add__", PyNumber_Add, add);
  def_operator(c, "__sub__", PyNumber_Subtract, sub);
  def_operator(c, "__mul__", PyNumber_Multiply, mul);
  def_operator(c, "__truediv__", PyNumber_TrueDivide);
  def_operator(c, "__pow__", kPower);
  def_operator(c, "__gt__", kCompare<Py_GT>);
  def_operator(c, "__ge__", kCompare<Py_GE>);
  def_operator(c, "__lt__", kCompare<Py_LT>);
  def_operator(c, "__le__", kCompare<Py_LE>);
  def_operator(c, "__radd__", PyNumber_Add, {}, true);
  def_operator(c, "__rsub__", PyNumber_Subtract, {}, true);
  def_operator(c, "__rmul__", PyNumber_Multiply, {}, true);
  def_operator(c, "__rtruediv__", PyNumber_TrueDivide, {}, true);
  c.def(
       "__and__", [](X a, X b) { return sparse_binary(a, b, BinaryOp::mul, Join::inner); },
       nb::is_operator(), Unlocked())
      .def("__neg__", [](X x) { return x.with_feats(mx::negative(x.feats())); })
      .def("__abs__", [](X x) { return x.with_feats(mx::abs(x.feats())); })
      .def("__len__", &SparseTensor::active_count)
      // A tensor without rows is a tensor: `if x:` does not ask for its length.
      .def("__bool__", [](X) { return true; });
}

// Words for the names of other libraries.
nb::object missing_attribute(X, const std::string& name) {
  constexpr std::pair<std::string_view, std::string_view> kForeign[] = {
      {"F", "feats"},
      {"C", "coords"},
      {"features", "feats"},
      {"indices", "coords"},
      {"feat", "feats"},
      {"coordinates", "coords"},
      {"replace_feature", "replace(feats=...)"},
      {"s", "stride"},
      {"tensor_stride", "stride"},
      {"dense", "to_dense()"},
      {"D", "coords.shape[1] - 1"},
  };
  std::string text = "'SparseTensor' object has no attribute '" + std::string(name) + "'";
  for (const auto& [theirs, ours] : kForeign)
    if (name == theirs) text += "; this library calls it `" + std::string(ours) + "`";
  throw nb::attribute_error(text.c_str());
}

void def_properties(nb::class_<SparseTensor>& c) {
  c.def_prop_ro(
       "coords", [](X t) { return remembered(t.coordinate_set()); },
       nb::sig("def coords(self) -> mlx.core.array"), "Coordinates (N, 4).")
      .def_prop_ro(
          "feats", [](X t) { return remembered(t.feats()); },
          nb::sig("def feats(self) -> mlx.core.array"), "Features (N, C).")
      .def_prop_ro(
          "stride", [](X t) { return to_python(t.stride()); }, "Step of the lattice per axis.")
      .def_prop_ro("coord_key", &SparseTensor::coord_key, "The name of the coordinates.")
      .def_prop_ro("coord_manager", &SparseTensor::coord_manager, "The owner of the coordinates.")
      .def_prop_ro(
          "batch_counts", [](X t) { return counts_tuple(t.batch_counts()); },
          "Rows of each batch item, if they were given, or None.")
      .def_prop_ro("active_rows", &SparseTensor::active_rows,
                   "The number of rows as an array (1,).")
      .def_prop_ro("capacity", &SparseTensor::capacity, "The number of rows.")
      .def_prop_ro("active_count", &SparseTensor::active_count, "The number of rows.")
      .def_prop_ro("channels", &SparseTensor::channels, "The number of channels.")
      .def_prop_ro(
          "shape", [](X t) { return std::make_tuple(t.capacity(), t.channels()); }, "(N, C).")
      .def_prop_ro("dtype", &SparseTensor::dtype, "The dtype of the features.")
      .def_prop_ro(
          "bounds",
          [](X t) {
            using Corner = std::tuple<int64_t, int64_t, int64_t>;
            std::optional<std::pair<Corner, Corner>> made;
            if (const auto b = t.bounds()) made.emplace(to_python(b->low), to_python(b->high));
            return made;
          },
          "(low, high) of the cells in which reached supports lie, or None.")
      .def_prop_ro("batch_size", &SparseTensor::batch_size, "The number of batch items.")
      .def_prop_ro("batch_indices", &SparseTensor::batch_indices,
                   "The batch item of each row, (N,).")
      .def_prop_ro("batch_rows", &SparseTensor::batch_rows, "The rows of each batch item.")
      .def_prop_ro("decomposed_coordinates", &SparseTensor::decomposed_coordinates,
                   "Coordinates (n, 3) of each batch item.")
      .def_prop_ro("decomposed_features", &SparseTensor::decomposed_features,
                   "Features (n, C) of each batch item.")
      .def_prop_ro(
          "decomposed_coordinates_and_features",
          [](X t) { return std::make_pair(t.decomposed_coordinates(), t.decomposed_features()); },
          "Both.");
}

void def_copies(nb::class_<SparseTensor>& c) {
  def_method(
      c, "with_feats", [](X t, const mx::array& feats) { return t.with_feats(feats); }, "feats"_a,
      "Other features, same coordinates.");
  def_method(
      c, "with_bounds", [](X t, const Bounds& bounds) { return t.with_bounds(bounds); }, "bounds"_a,
      "The same rows with bounds ((0, 0, 0), (D, H, W)) for convolutions with support=\"reached\"; "
      "later\nlayers pass them on.");
  def_method(
      c, "astype", [](X t, mx::Dtype dtype) { return t.astype(dtype); }, "dtype"_a,
      "The features in another dtype.");
  def_method(
      c, "replace",
      [](X t, Optional coords, Optional feats, const std::optional<Triple>& stride) {
        return t.replace(coords, feats, stride);
      },
      nb::kw_only(), "coords"_a = nb::none(), "feats"_a = nb::none(), "stride"_a = nb::none(),
      Unlocked(), "The tensor with other parts; feats alone keep the identity of the coordinates.");
  c.def("reuse_coords_from", &SparseTensor::reuse_coords_from, "other"_a,
        "These features on the other's coordinates, which must be equal row by row (ValueError).")
      .def("same_coords", &SparseTensor::same_coords, "other"_a,
           "Whether manager and key are the same.")
      .def("sorted", &SparseTensor::sorted, Unlocked(),
           "(tensor with rows by (batch, x, y, z), row of each before)")
      .def("export_components", &SparseTensor::export_components, "All parts as plain data.")
      .def_static(
          "from_components",
          [](Parts components, const ManagerPtr& manager) {
            if (manager && manager != components.coord_manager) {
              components.coord_manager = manager;
              if (components.coord_key && !manager->owns(*components.coord_key))
                components.coord_key.reset();
            }
            return SparseTensor::from_components(components);
          },
          "components"_a, nb::kw_only(), "coord_manager"_a = nb::none(), Unlocked(),
          "A tensor of its parts; coord_manager is where the coordinates go instead of their own.");
}

void def_dense(nb::class_<SparseTensor>& c) {
  def_method(
      c, "to_dense",
      [](X t, const std::optional<std::vector<int64_t>>& shape,
         const std::optional<Triple>& min_coord,
         mx::StreamOrDevice s) { return to_dense(t, shape, min_coord, s); },
      "shape"_a = nb::none(), "min_coord"_a = nb::none(), nb::kw_only(), "stream"_a = nb::none(),
      Unlocked(),
      "(B, X, Y, Z, C). shape: X Y Z, or B X Y Z, or B X Y Z C; min_coord: the coordinate of cell "
      "0, default 0.");
  def_static(
      c, "from_dense",
      [](const mx::array& dense, Optional mask, const Triple& stride, const Triple& min_coord,
         mx::StreamOrDevice s) { return from_dense(dense, mask, stride, min_coord, s); },
      "array"_a, nb::kw_only(), "mask"_a = nb::none(), "stride"_a = 1, "min_coord"_a = 0,
      "stream"_a = nb::none(), Unlocked(),
      "Rows for the cells of (B, X, Y, Z, C) where mask is true, else where a channel is not 0.");
}

void def_pickling(nb::class_<SparseTensor>& c) {
  // Immutable: a copy is the same object.
  c.def(
       "__copy__", [](nb::handle self) { return nb::borrow(self); },
       nb::sig("def __copy__(self) -> SparseTensor"))
      .def(
          "__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); },
          nb::sig("def __deepcopy__(self, memo: object, /) -> SparseTensor"))
      .def(
          "__getstate__",
          [](X t) {
            return nb::make_tuple(mx::array(t.coords()), mx::array(t.feats()),
                                  to_python(t.stride()), counts_tuple(t.batch_counts()));
          },
          nb::sig("def __getstate__(self) -> tuple[typing.Any, ...]"))
      .def(
          "__setstate__",
          [](SparseTensor& t, nb::tuple state) {
            if (state.size() != 4 || !nb::isinstance<mx::array>(state[0]) ||
                !nb::isinstance<mx::array>(state[1]))
              throw std::invalid_argument(
                  "[SparseTensor] state must be (coords, feats, stride, batch_counts) with two "
                  "arrays, found " +
                  std::string(nb::repr(nb::object(state).type()).c_str()) + " of " +
                  std::to_string(state.size()) +
                  " items; the pickle is damaged or of another version");
            const Parts p =
                parts(nb::cast<mx::array>(state[0]), nb::cast<mx::array>(state[1]),
                      triple(state[2], {"SparseTensor", "stride"}), std::nullopt, std::nullopt,
                      Argument<std::optional<BatchCounts>>::from(state[3],
                                                                 {"SparseTensor", "batch_counts"}),
                      std::nullopt);
            new (&t) SparseTensor(SparseTensor::from_components(p));
          },
          nb::sig("def __setstate__(self, state: tuple[typing.Any, ...], /) -> None"));
}

}  // namespace

void bind_tensor(nb::module_& m) {
  bind_components(m);
  nb::class_<SparseTensor> c(m, "SparseTensor", kHelp);
  def_init(
      c,
      [](const Given& coords, const Given& feats, const Triple& stride, Key key, Manager manager,
         Counts counts, Optional active_rows) {
        return SparseTensor::from_components(
            parts(coords, feats, stride, key, manager, counts, active_rows));
      },
      "coords"_a, "feats"_a, "stride"_a = 1, nb::kw_only(), "coord_key"_a = nb::none(),
      "coord_manager"_a = nb::none(), "batch_counts"_a = nb::none(), "active_rows"_a = nb::none(),
      Unlocked());
  def_properties(c);
  def_copies(c);
  def_dense(c);
  def_operators(c);
  def_pickling(c);
  c.def("__repr__", &SparseTensor::text)
      .def("__getattr__", &missing_attribute)
      .def(
          "_repr_html_",
          [](nb::handle self) {
            return nb::module_::import_("mlx_lattice.viewer.notebook").attr("sparse_tensor")(self);
          },
          nb::sig("def _repr_html_(self) -> str"));
}
