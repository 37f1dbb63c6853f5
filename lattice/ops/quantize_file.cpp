#include "lattice/ops/quantize_file.h"

#include <mlx/io.h>

#include <stdexcept>

#include "lattice/core/errors.h"

namespace lattice {
namespace {

[[noreturn]] void fail_at(const std::string& path, const std::string& what) {
  fail("load_weights", path + ": " + what);
}

mx::SafetensorsLoad read(const std::string& path) {
  try {
    return mx::load_safetensors(path);
  } catch (const std::exception& error) {
    fail_at(path, std::string("cannot be read as a safetensors file: ") + error.what());
  }
}

}  // namespace

std::map<std::string, Weight> join_weights(
    std::unordered_map<std::string, mx::array> arrays,
    const std::unordered_map<std::string, std::string>& forms, const std::string& path) {
  const auto take = [&](const std::string& name) {
    const auto found = arrays.find(name);
    if (found == arrays.end()) fail_at(path, "there is no array " + name);
    mx::array value = found->second;
    arrays.erase(found);
    // mlx.nn.QuantizedLinear keeps (C_out, words); here the kernel of one offset is an axis.
    return value.ndim() == 2 ? mx::expand_dims(value, 0) : value;
  };
  std::map<std::string, Weight> weights;
  for (const auto& [name, form] : forms) {
    if (!name.ends_with(".weight")) continue;
    const std::string stem = name.substr(0, name.size() - std::string("weight").size());
    const mx::array scales = take(stem + "scales"), biases = take(stem + "biases");
    try {
      weights.emplace(name,
                      with_form({.weight = take(name), .scales = scales, .biases = biases}, form));
    } catch (const std::exception& error) {
      fail_at(path, name + ": " + error.what());
    }
  }
  for (auto& [name, value] : arrays) {
    if (value.dtype() == mx::uint32)
      fail_at(path, name +
                        " holds packed codes, and the header does not say their form; write the " +
                        "file again with `mlx-lattice quantize`");
    weights.emplace(name, std::move(value));
  }
  return weights;
}

std::map<std::string, Weight> load_weights(const std::string& path) {
  auto [arrays, forms] = read(path);
  return join_weights(std::move(arrays), forms, path);
}

}  // namespace lattice
