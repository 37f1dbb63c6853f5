// Folders of the older package's artifacts: reading, and inputs for the dry run.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/program/executor.h"
#include "lattice/program/mlir_lower.h"

namespace lattice::program::mlir {
namespace {

constexpr int64_t kMostItems = 64;  // batch items of a dry run

// Makes a few rows for the dry run. Their coordinates must be distinct and divisible by the stride,
// every batch item must be present, and all rows must be active.
class Trial {
 public:
  explicit Trial(const Module& module)
      : module_(module),
        roles_(static_cast<size_t>(module.arguments)),
        strides_(static_cast<size_t>(module.arguments), Triple{1, 1, 1}) {
    for (const Operation& operation : module.operations) {
      if (operation.name == "sparse.make") {
        mark(operation.operands[0], 'c');
        mark(operation.operands[2], 'a');
        if (operation.operands[0] < module.arguments)
          widen(strides_[static_cast<size_t>(operation.operands[0])],
                operation.attributes.at("stride").integers);
      } else if (operation.name == "voxelize" || operation.name == "devoxelize") {
        mark(operation.operands[2], 'b');
        mark(operation.operands[3], 'a');
      } else if (operation.name == "global_pool") {
        items_ = std::max(items_, operation.attributes.at("batch_size").integer);
      }
    }
  }

  // Two sizes; nothing where the text does not say enough to make rows.
  std::vector<ProgramValues> values() const {
    bool known = items_ <= kMostItems;
    for (int i = 0; i < module_.arguments; ++i) {
      const std::vector<int64_t>& shape = module_.types[i].shape;
      known = known && !shape.empty() && shape.size() <= 2 && (shape.size() < 2 || shape[1] >= 0);
      // A number of rows that the text fixes would not be that of the trial inputs.
      known = known && (roles_[static_cast<size_t>(i)] == 'a' || shape[0] < 0);
    }
    if (!known) return {};
    return {rows(2), rows(3)};
  }

 private:
  void mark(int value, char role) {
    if (value < module_.arguments) roles_[static_cast<size_t>(value)] = role;
  }
  static void widen(Triple& stride, const std::vector<int64_t>& by) {
    for (int axis = 0; axis < 3; ++axis)
      stride[axis] = std::min<int64_t>(std::lcm(stride[axis], by[static_cast<size_t>(axis)]),
                                       int64_t{1} << 28);
  }

  ProgramValues rows(int each) const {
    const int n = static_cast<int>(std::max<int64_t>(items_, 2)) * each;
    ProgramValues made;
    const auto& names = module_.attributes.at("lattice.input_names").strings;
    for (size_t i = 0; i < roles_.size(); ++i) {
      const Type& type = module_.types[i];
      const int width = type.shape.size() > 1 ? static_cast<int>(type.shape[1]) : 1;
      std::vector<double> values;
      for (int r = 0; r < (roles_[i] == 'a' ? 1 : n); ++r)
        for (int j = 0; j < width; ++j) values.push_back(value(i, r, j, each, n));
      mx::Shape shape{static_cast<int>(values.size()) / std::max(width, 1)};
      if (type.shape.size() > 1) shape = {n, width};
      const mx::array wide = new_array(values.data(), shape, mx::float64);
      made.emplace(names[i], mx::astype(wide, *dtype_named(type.dtype), mx::Device::cpu));
    }
    return made;
  }
  double value(size_t argument, int row, int column, int each, int n) const {
    switch (roles_[argument]) {
      case 'c':
        return column == 0 ? row / each
               : column == 1
                   ? static_cast<double>(row % each) * static_cast<double>(strides_[argument][0])
                   : 0;
      case 'a':
        return n;
      case 'b':
        return row / each;
      default:
        return module_.types[argument].dtype[0] == 'i' ? 0 : row % each;
    }
  }

  const Module& module_;
  std::vector<char> roles_;      // of arguments: coordinates, active, batch indices, or others
  std::vector<Triple> strides_;  // of coordinates
  int64_t items_ = 0;
};

}  // namespace

std::shared_ptr<const Loaded> load(const std::string& text, const Arrays& weights) {
  const Module module = parse(text);
  verify(module);
  auto [graph, tensors] = lower(module, weights);
  return load_graph(std::move(graph), std::move(tensors), {{"older", "2"}}, Trial(module).values());
}

std::shared_ptr<const Loaded> load_folder(const std::string& folder) {
  const auto in = [&](const std::string& file, const auto& f) {
    const std::string path = folder + "/" + file;
    const std::string bytes = read_bytes(path);
    try {
      return f(bytes);
    } catch (const Error& error) {
      throw Error(error.code(), path + ": " + error.what(), error.operation(), error.argument());
    }
  };
  const std::string text = in("graph.mlir", [](const std::string& bytes) { return bytes; });
  const TensorFile file = in("weights.safetensors", [](const std::string& bytes) {
    return read_tensors(std::as_bytes(std::span(bytes)));
  });
  return in("graph.mlir", [&](const std::string&) { return load(text, file.arrays); });
}

}  // namespace lattice::program::mlir
