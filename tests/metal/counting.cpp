// A GPU that counts. Its kernels are lazy nodes that write zeros, so a graph of a training step is
// the one that a GPU would get. work_of() lists what evaluating arrays would launch.
//
// A node is one launch, a concatenation one for each input. Views are none: transpositions, slices,
// axes of length one. A reshape or `contiguous` launches a copy where its input is not
// row-contiguous, which is followed through transpositions.
#include "counting.h"

#include <mlx/mlx.h>
#include <mlx/primitives.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <cstring>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <unordered_set>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/gpu_call.h"
#include "lattice/routes/probe.h"

namespace nb = nanobind;
namespace mx = mlx::core;
using namespace lattice;
using graph::Arrays;

namespace {

bool is_dense(const mx::Shape& shape, const mx::Strides& strides) {
  int64_t next = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != next) return false;
    next *= shape[i];
  }
  return true;
}

mx::Strides dense_strides(const mx::Shape& shape) {
  mx::Strides strides(shape.size());
  int64_t next = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = next;
    next *= shape[i];
  }
  return strides;
}

using Sizes = std::vector<int>;
// Name, bytes read, bytes written, shape of the result, shapes of the inputs.
using Row = std::tuple<std::string, int64_t, int64_t, Sizes, std::vector<Sizes>>;

Sizes sizes_of(const mx::array& a) { return {a.shape().begin(), a.shape().end()}; }

std::atomic<int64_t> kernels_run = 0;

class Walk {
 public:
  std::vector<Row> rows;

  void visit(const mx::array& a) {
    if (done(a) || !seen_.insert(a.id()).second) return;
    for (const mx::array& in : a.inputs()) visit(in);
    std::set<std::uintptr_t> ids = {a.id()};
    int64_t written = static_cast<int64_t>(a.nbytes()), read = 0;
    for (const mx::array& other : a.siblings()) {
      seen_.insert(other.id());
      written += static_cast<int64_t>(other.nbytes());
    }
    const std::string name = a.primitive().name();
    if (!launches(a, name)) return;
    std::unordered_set<std::uintptr_t> once;
    for (const mx::array& in : a.inputs())
      if (once.insert(in.id()).second) read += static_cast<int64_t>(in.nbytes());
    std::vector<Sizes> inputs;
    for (const mx::array& in : a.inputs()) inputs.push_back(sizes_of(in));
    rows.emplace_back(name, read, written, sizes_of(a), inputs);
    if (name == "Concatenate")  // a copy of each input; the first one has the bytes
      for (size_t i = 1; i < inputs.size(); ++i) rows.emplace_back(name, 0, 0, sizes_of(a), inputs);
  }

 private:
  std::unordered_set<std::uintptr_t> seen_;
  std::unordered_map<std::uintptr_t, mx::Strides> strides_;

  static bool done(const mx::array& a) {
    return !a.has_primitive() || a.status() != mx::array::Status::unscheduled;
  }
  // Strides that MLX will give it, as far as they matter here.
  const mx::Strides& strides(const mx::array& a) {
    const auto found = strides_.find(a.id());
    if (found != strides_.end()) return found->second;
    mx::Strides found_now = made(a);
    if (found_now.size() != a.ndim()) found_now = dense_strides(a.shape());
    return strides_.emplace(a.id(), std::move(found_now)).first->second;
  }
  mx::Strides made(const mx::array& a) {
    if (done(a)) return a.strides();
    const std::string_view name = a.primitive().name();
    if (name == "Transpose") {
      const mx::Strides& from = strides(a.inputs()[0]);
      mx::Strides to;
      for (const int axis : static_cast<const mx::Transpose&>(a.primitive()).state())
        to.push_back(from[static_cast<size_t>(axis)]);
      return to;
    }
    if (name == "ExpandDims" || name == "Squeeze") {
      const mx::array& in = a.inputs()[0];
      const mx::Strides& from = strides(in);
      if (from.size() != in.ndim()) return {};
      mx::Strides kept, to;
      for (size_t i = 0; i < from.size(); ++i)
        if (in.shape(static_cast<int>(i)) != 1) kept.push_back(from[i]);
      size_t next = 0;
      for (const int n : a.shape()) {
        if (n != 1 && next == kept.size()) return {};
        to.push_back(n == 1 ? 0 : kept[next++]);
      }
      return to;
    }
    if (name == "StopGradient" || name == "Copy") return strides(a.inputs()[0]);
    if (name == "CustomTransforms") {  // its last inputs are its outputs
      for (size_t i = a.inputs().size(); i-- > 0;)
        if (a.inputs()[i].shape() == a.shape()) return strides(a.inputs()[i]);
      return {};
    }
    if (name == "AsType") {  // a copy keeps the order of a dense array
      const mx::Strides& from = strides(a.inputs()[0]);
      if (from.size() != a.ndim()) return {};
      int64_t reach = 1;
      for (size_t i = 0; i < from.size(); ++i)
        reach += (a.shape(static_cast<int>(i)) - 1) * std::abs(from[i]);
      if (reach == static_cast<int64_t>(a.size())) return from;
    }
    if (name == "Slice" || name == "Broadcast") return mx::Strides(a.ndim(), -1);
    return dense_strides(a.shape());
  }
  bool launches(const mx::array& a, std::string_view name) {
    static const std::unordered_set<std::string_view> kViews = {
        "Transpose", "ExpandDims", "Squeeze",       "StopGradient",     "Slice",
        "Broadcast", "Copy",       "BroadcastAxes", "CustomTransforms", "Depends",
        "View",      "AsStrided",  "Split"};
    if (a.size() == 0 || kViews.contains(name)) return false;
    if (name == "Reshape" || name == "Flatten" || name == "Unflatten" || name == "Contiguous")
      return !is_dense(a.inputs()[0].shape(), strides(a.inputs()[0]));
    return true;
  }
};

void fill_counting(const std::string& backend) {
  graph::StandIn machine{
      .backend = backend == "cuda" ? graph::GpuBackend::cuda : graph::GpuBackend::metal,
      .tensor_ops = graph::TensorOps::gpu,
      .probing = false};
  machine.run = [](const graph::GpuCall& call, const Arrays& inputs, const auto&) {
    std::string key;
    for (const int n : call.grid) key += std::to_string(n) + "/";
    return graph::cpu_call("gpu." + call.name, key, inputs, call.outputs,
                           [](std::span<const graph::Input>, std::span<const graph::Output> out) {
                             ++kernels_run;
                             for (const graph::Output& o : out)
                               std::memset(o.data, 0, static_cast<size_t>(o.size) * o.dtype.size());
                           });
  };
  graph::stand_in() = std::move(machine);
  routes::forget_probes();
}

}  // namespace

void bind_counting(nb::module_& m) {
  m.def("fill_counting", &fill_counting, nb::arg("backend") = "metal");
  m.def("work_of", [](const Arrays& arrays) {
    Walk walk;
    for (const mx::array& a : arrays) walk.visit(a);
    return walk.rows;
  });
  // How many kernels were evaluated so far, also where nobody looked.
  m.def("kernels_run", [] { return kernels_run.load(); });
  // Whether reading the values waits for nothing.
  m.def("is_ready", [](const mx::array& a) {
    return !a.has_primitive() || a.status() == mx::array::Status::available;
  });
}
