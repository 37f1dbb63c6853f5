// Functions of MLX in programs: element by element, shapes, rows, reductions. Names and meaning are
// those of mlx.core; docs/programs.md lists them.
#include <mlx/fast.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>
#include <mlx/utils.h>

#include <algorithm>

#include "lattice/core/errors.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

using mx::array;
using mx::Shape;

constexpr Operand kA{"a", "array"}, kB{"b", "array"};
constexpr Attribute kAxis{"axis", Type::integer, false, -1, -8, 8},
    kAxes{"axes", Type::integers, false, -1, -8, 8}, kKeep{"keepdims", Type::flag};

[[noreturn]] void refuse(const Call& call, const char* argument, const std::string& what) {
  throw Error(ErrorCode::argument, "[Program] " + call.place() + ": " + argument + " " + what,
              call.node().operation->name, argument);
}

std::vector<int> small(const std::vector<int64_t>& values) {
  return {values.begin(), values.end()};
}

using Unary = array (*)(const array&, mx::StreamOrDevice);
using Binary = array (*)(const array&, const array&, mx::StreamOrDevice);
using Reduce = array (*)(const array&, const std::vector<int>&, bool, mx::StreamOrDevice);

void add_unary(std::vector<Operation>& rows) {
  const std::pair<const char*, Unary> all[] = {{"abs", mx::abs},
                                               {"cos", mx::cos},
                                               {"erf", mx::erf},
                                               {"exp", mx::exp},
                                               {"floor", mx::floor},
                                               {"ceil", mx::ceil},
                                               {"log", mx::log},
                                               {"log1p", mx::log1p},
                                               {"negative", mx::negative},
                                               {"reciprocal", mx::reciprocal},
                                               {"rsqrt", mx::rsqrt},
                                               {"sigmoid_array", mx::sigmoid},
                                               {"sign", mx::sign},
                                               {"sin", mx::sin},
                                               {"sqrt", mx::sqrt},
                                               {"square", mx::square},
                                               {"tanh_array", mx::tanh},
                                               {"ones_like", mx::ones_like},
                                               {"zeros_like", mx::zeros_like},
                                               {"logical_not", mx::logical_not}};
  for (const auto& [name, f] : all)
    rows.push_back(
        {name, 1, {kA}, {}, {"array"}, Phase::features, [f = f](const Call& call) -> Results {
           return {f(call.array("a"), {})};
         }});
}

void add_binary(std::vector<Operation>& rows) {
  const std::pair<const char*, Binary> all[] = {{"add", mx::add},
                                                {"arctan2", mx::arctan2},
                                                {"divide", mx::divide},
                                                {"equal", mx::equal},
                                                {"greater", mx::greater},
                                                {"greater_equal", mx::greater_equal},
                                                {"less", mx::less},
                                                {"less_equal", mx::less_equal},
                                                {"logical_and", mx::logical_and},
                                                {"logical_or", mx::logical_or},
                                                {"matmul", mx::matmul},
                                                {"maximum", mx::maximum},
                                                {"minimum", mx::minimum},
                                                {"multiply", mx::multiply},
                                                {"not_equal", mx::not_equal},
                                                {"power", mx::power},
                                                {"subtract", mx::subtract}};
  for (const auto& [name, f] : all)
    rows.push_back(
        {name, 1, {kA, kB}, {}, {"array"}, Phase::features, [f = f](const Call& call) -> Results {
           return {f(call.array("a"), call.array("b"), {})};
         }});
}

// The shape behind a reduction; nothing where values are reduced. MLX refuses to take the largest
// of no rows even where each row has values, and a frame without voxels has no rows.
std::optional<mx::array> reduced_nothing(const mx::array& a, const std::vector<int>& axes,
                                         bool keep, mx::Dtype dtype) {
  if (a.size() > 0) return std::nullopt;
  mx::Shape shape;
  for (int axis = 0; axis < static_cast<int>(a.ndim()); ++axis) {
    const bool gone = std::any_of(axes.begin(), axes.end(), [&](int given) {
      return given == axis || given + static_cast<int>(a.ndim()) == axis;
    });
    if (gone && a.shape(axis) == 0) return std::nullopt;
    if (!gone || keep) shape.push_back(gone ? 1 : a.shape(axis));
  }
  return mx::zeros(shape, dtype);
}

void add_reductions(std::vector<Operation>& rows) {
  const std::pair<const char*, Reduce> all[] = {
      {"max", mx::max}, {"mean", mx::mean}, {"min", mx::min}, {"sum", mx::sum}};
  for (const auto& [name, f] : all)
    rows.push_back({name,
                    1,
                    {kA},
                    {kAxes, kKeep},
                    {"array"},
                    Phase::features,
                    [f = f](const Call& call) -> Results {
                      const mx::array& a = call.array("a");
                      const std::vector<int> axes = small(call.integers("axes"));
                      const bool keep = call.flag("keepdims");
                      if (const auto none = reduced_nothing(a, axes, keep, a.dtype()))
                        return {*none};
                      return {f(a, axes, keep, {})};
                    }});
  rows.push_back({"var",
                  1,
                  {kA},
                  {kAxes, kKeep, {"ddof", Type::integer, false, -1, 0}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::var(call.array("a"), small(call.integers("axes")),
                                    call.flag("keepdims"), static_cast<int>(call.integer("ddof")))};
                  }});
  rows.push_back(
      {"softmax",
       1,
       {kA},
       {kAxes, {"precise", Type::flag}},
       {"array"},
       Phase::features,
       [](const Call& call) -> Results {
         return {mx::softmax(call.array("a"), small(call.integers("axes")), call.flag("precise"))};
       }});
}

// Along one axis.
void add_orders(std::vector<Operation>& rows) {
  rows.push_back({"argmax",
                  1,
                  {kA},
                  {kAxis, kKeep},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    const mx::array& a = call.array("a");
                    const auto axis = static_cast<int>(call.integer("axis"));
                    const bool keep = call.flag("keepdims");
                    if (const auto none = reduced_nothing(a, {axis}, keep, mx::uint32))
                      return {*none};
                    return {mx::argmax(a, axis, keep)};
                  }});
  rows.push_back(
      {"argsort", 1, {kA}, {kAxis}, {"array"}, Phase::features, [](const Call& call) -> Results {
         return {mx::argsort(call.array("a"), static_cast<int>(call.integer("axis")))};
       }});
  rows.push_back({"cumsum",
                  1,
                  {kA},
                  {kAxis, {"reverse", Type::flag}, {"inclusive", Type::flag}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::cumsum(call.array("a"), static_cast<int>(call.integer("axis")),
                                       call.flag("reverse"), call.flag("inclusive"))};
                  }});
}

// One size may be -1: what is left. An array without values has 0 there.
Results run_reshape(const Call& call) {
  const array& a = call.array("a");
  const std::vector<int64_t>& shape = call.integers("shape");
  int64_t known = 1, free = -1;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] == -1 && free >= 0) refuse(call, "shape", "must have at most one -1");
    if (shape[i] == -1)
      free = static_cast<int64_t>(i);
    else
      known *= shape[i];
    if (known < 0 || known > (int64_t{1} << 40)) refuse(call, "shape", "is too large");
  }
  Shape sizes(shape.begin(), shape.end());
  const auto size = static_cast<int64_t>(a.size());
  if (free >= 0) {
    if (known == 0 || size % known != 0)
      refuse(call, "shape", "does not divide " + std::to_string(size) + " values");
    sizes[static_cast<size_t>(free)] = static_cast<int>(size / known);
  }
  return {mx::reshape(a, sizes)};
}

// -1: the size that the array has on this axis, counted from the last.
Results run_broadcast(const Call& call) {
  const array& a = call.array("a");
  const std::vector<int64_t>& shape = call.integers("shape");
  Shape sizes(shape.begin(), shape.end());
  int64_t total = 1;
  for (size_t i = 0; i < sizes.size(); ++i) {
    const auto axis = static_cast<int64_t>(a.ndim() + i) - static_cast<int64_t>(sizes.size());
    if (sizes[i] == -1 && axis < 0) refuse(call, "shape", "has -1 for an axis that `a` lacks");
    if (sizes[i] == -1) sizes[i] = a.shape(static_cast<int>(axis));
    total *= sizes[i];
    if (total < 0 || total > (int64_t{1} << 40)) refuse(call, "shape", "is too large");
  }
  return {mx::broadcast_to(a, sizes)};
}

// Python's a[start:stop:step] on each axis; "squeeze" lists axes that an integer took. A stop of
// 2147483647 is the end.
Results run_slice(const Call& call) {
  const array& a = call.array("a");
  const auto start = small(call.integers("start")), stop = small(call.integers("stop")),
             step = small(call.integers("step"));
  if (start.size() != a.ndim() || stop.size() != a.ndim() || step.size() != a.ndim())
    refuse(call, "start", "must have one number for each axis of `a`");
  Shape from(start.begin(), start.end()), to(stop.begin(), stop.end());
  for (size_t i = 0; i < a.ndim(); ++i) {
    const int n = a.shape(static_cast<int>(i));
    if (step[i] < 1) refuse(call, "step", "must be at least 1");
    for (int* edge : {&from[i], &to[i]}) {
      if (*edge < 0) *edge = *edge < -n ? 0 : *edge + n;
      *edge = std::min(*edge, n);
    }
  }
  const std::vector<int> taken = small(call.integers("squeeze"));
  for (const int axis : taken) {
    if (axis < 0 || axis >= static_cast<int>(a.ndim())) refuse(call, "squeeze", "names no axis");
    const auto i = static_cast<size_t>(axis);
    if (from[i] >= a.shape(axis)) refuse(call, "start", "lies outside of the array");
    to[i] = from[i] + 1;
  }
  const array part = mx::slice(a, from, to, Shape(step.begin(), step.end()));
  return {taken.empty() ? part : mx::squeeze(part, taken)};
}

// Indices below 0 count from the end, as in Python. A row outside would be read from foreign
// memory: indices that are known are checked, those that are still to be computed are kept inside.
Results run_take(const Call& call) {
  const array& a = call.array("a");
  const array& indices = call.array("indices");
  if (!mx::issubdtype(indices.dtype(), mx::integer)) refuse(call, "indices", "must be integers");
  const auto axis = static_cast<int>(call.integer("axis"));
  if (axis < 0 || axis >= static_cast<int>(a.ndim())) refuse(call, "axis", "names no axis");
  const int n = a.shape(axis);
  if (indices.size() == 0) return {mx::take(a, indices, axis)};
  if (n == 0) refuse(call, "indices", "must be empty, because `a` has no rows");
  if (!indices.is_available()) {
    const array low(mx::issubdtype(indices.dtype(), mx::unsignedinteger) ? 0 : -n, indices.dtype());
    return {mx::take(a, mx::clip(indices, low, array(n - 1, indices.dtype())), axis)};
  }
  const array ends = mx::astype(mx::stack({mx::min(indices), mx::max(indices)}), mx::int64);
  mx::eval(ends);
  if (ends.data<int64_t>()[0] < -n || ends.data<int64_t>()[1] >= n)
    refuse(call, "indices", "must be in 0.." + std::to_string(n - 1));
  return {mx::take(a, indices, axis)};
}

Results run_astype(const Call& call) {
  const auto dtype = dtype_named(call.text("dtype"));
  if (!dtype) refuse(call, "dtype", "\"" + call.text("dtype") + "\" is unknown");
  return {mx::astype(call.array("a"), *dtype)};
}

void add_shapes(std::vector<Operation>& rows) {
  const Attribute shape{"shape", Type::integers, false, -1, -1};
  rows.push_back({"reshape", 1, {kA}, {shape}, {"array"}, Phase::features, run_reshape});
  rows.push_back({"broadcast_to", 1, {kA}, {shape}, {"array"}, Phase::features, run_broadcast});
  rows.push_back(
      {"transpose", 1, {kA}, {kAxes}, {"array"}, Phase::features, [](const Call& call) -> Results {
         return {mx::transpose(call.array("a"), small(call.integers("axes")))};
       }});
  rows.push_back({"expand_dims",
                  1,
                  {kA},
                  {kAxes},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::expand_dims(call.array("a"), small(call.integers("axes")))};
                  }});
  rows.push_back(
      {"squeeze", 1, {kA}, {kAxes}, {"array"}, Phase::features, [](const Call& call) -> Results {
         return {mx::squeeze(call.array("a"), small(call.integers("axes")))};
       }});
  rows.push_back(
      {"astype", 1, {kA}, {{"dtype", Type::text}}, {"array"}, Phase::features, run_astype});
  rows.push_back({"repeat",
                  1,
                  {kA},
                  {{"repeats", Type::integer, false, -1, 0, 1 << 20}, kAxis},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::repeat(call.array("a"), static_cast<int>(call.integer("repeats")),
                                       static_cast<int>(call.integer("axis")))};
                  }});
}

void add_rows(std::vector<Operation>& rows) {
  const Attribute edge{"start", Type::integers}, stop{"stop", Type::integers},
      step{"step", Type::integers}, squeeze{"squeeze", Type::integers};
  rows.push_back(
      {"slice", 1, {kA}, {edge, stop, step, squeeze}, {"array"}, Phase::features, run_slice});
  rows.push_back(
      {"take", 1, {kA, {"indices", "array"}}, {kAxis}, {"array"}, Phase::features, run_take});
  rows.push_back(
      {"concatenate",
       1,
       {{"arrays", "array", Form::list}},
       {kAxis},
       {"array"},
       Phase::features,
       [](const Call& call) -> Results {
         return {mx::concatenate(call.arrays("arrays"), static_cast<int>(call.integer("axis")))};
       }});
  rows.push_back({"stack",
                  1,
                  {{"arrays", "array", Form::list}},
                  {kAxis},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {
                        mx::stack(call.arrays("arrays"), static_cast<int>(call.integer("axis")))};
                  }});
  rows.push_back({"where",
                  1,
                  {{"condition", "array"}, kA, kB},
                  {},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::where(call.array("condition"), call.array("a"), call.array("b"))};
                  }});
}

void add_layers(std::vector<Operation>& rows) {
  rows.push_back({"addmm",
                  1,
                  {{"c", "array"}, kA, kB},
                  {{"alpha", Type::number}, {"beta", Type::number}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::addmm(call.array("c"), call.array("a"), call.array("b"),
                                      static_cast<float>(call.number("alpha")),
                                      static_cast<float>(call.number("beta")))};
                  }});
  const Operand x{"x", "array"}, weight{"weight", "array", Form::optional},
      bias{"bias", "array", Form::optional};
  rows.push_back({"fast_layer_norm",
                  1,
                  {x, weight, bias},
                  {{"eps", Type::number}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::fast::layer_norm(call.array("x"), call.optional_array("weight"),
                                                 call.optional_array("bias"),
                                                 static_cast<float>(call.number("eps")))};
                  }});
  rows.push_back({"fast_rms_norm",
                  1,
                  {x, weight},
                  {{"eps", Type::number}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {mx::fast::rms_norm(call.array("x"), call.optional_array("weight"),
                                               static_cast<float>(call.number("eps")))};
                  }});
}

}  // namespace

std::vector<Operation> array_operations() {
  std::vector<Operation> rows;
  add_unary(rows);
  add_binary(rows);
  add_reductions(rows);
  add_orders(rows);
  add_shapes(rows);
  add_rows(rows);
  add_layers(rows);
  return rows;
}

}  // namespace lattice::program
