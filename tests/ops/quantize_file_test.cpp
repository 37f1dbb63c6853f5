// Files of weights: what comes back, and what a broken file says.
#include "lattice/ops/quantize_file.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>
#include <unistd.h>

#include <filesystem>

#include "lattice/ops/quantize.h"
#include "tests/support/errors.h"

namespace lattice {
namespace {

using Arrays = std::unordered_map<std::string, mx::array>;
using Forms = std::unordered_map<std::string, std::string>;

// A file of this process that goes with the test.
class File {
 public:
  File(const Arrays& arrays, const Forms& forms)
      : path_(std::filesystem::temp_directory_path() /
              ("weights_" + std::to_string(getpid()) + ".safetensors")) {
    mx::save_safetensors(path_.string(), arrays, forms);
  }
  ~File() { std::filesystem::remove(path_); }
  std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

Arrays parts(const QuantizedWeight& q) {
  return {{"a.weight", q.weight()}, {"a.scales", q.scales()}, {"a.biases", q.biases()}};
}

TEST(QuantizeFile, ReturnsArraysAndPackedWeights) {
  for (const mx::Shape& shape : {mx::Shape{7, 40}, mx::Shape{27, 5, 7}, mx::Shape{7, 3, 2, 1, 70},
                                 mx::Shape{7, 1, 1, 1, 33}})
    for (const int bits : {4, 8}) {
      const mx::array w = mx::random::normal(shape, mx::float32, mx::random::key(1));
      const QuantizedWeight q = quantize_weight(w, 32, bits);
      Arrays arrays = parts(q);
      arrays.emplace("a.bias", mx::ones({7}));
      const File file(arrays, {{"a.weight", q.form()}, {"quantization", "of Python"}});
      const auto found = load_weights(file.path());
      ASSERT_EQ(found.size(), 2u);
      EXPECT_EQ(std::get<mx::array>(found.at("a.bias")).shape(), (mx::Shape{7}));
      const auto& again = std::get<QuantizedWeight>(found.at("a.weight"));
      EXPECT_EQ(again.form(), q.form());
      EXPECT_EQ(again.dense_shape(), shape);
      EXPECT_TRUE(mx::array_equal(dequantize_weight(again), dequantize_weight(q)).item<bool>());
    }
}

// mlx.nn.QuantizedLinear has no axis of kernel offsets.
TEST(QuantizeFile, TakesLinearLayersOfMlx) {
  const QuantizedWeight q = quantize_weight(mx::ones({8, 64}), 64, 4);
  Arrays arrays;
  for (const auto& [name, value] : parts(q)) arrays.emplace(name, mx::squeeze(value, 0));
  const File file(arrays, {{"a.weight", q.form()}});
  EXPECT_TRUE(std::holds_alternative<QuantizedWeight>(load_weights(file.path()).at("a.weight")));
}

TEST(QuantizeFile, BrokenFilesNameFileAndWeight) {
  const QuantizedWeight q = quantize_weight(mx::ones({8, 64}), 64, 4);
  const auto told = [&](const Arrays& arrays, const std::string& form) {
    const File file(arrays, form.empty() ? Forms{} : Forms{{"a.weight", form}});
    return support::message([&] { load_weights(file.path()); });
  };
  Arrays lacking = parts(q);
  lacking.erase("a.scales");
  const std::string form = q.form(), start = form.substr(0, form.rfind(' '));
  for (const auto& [arrays, said, expected] :
       {std::tuple{parts(q), std::string(), "does not say their form"},
        {lacking, form, "there is no array a.scales"},
        {parts(q), start, "form must have group_size"},
        {parts(q), form + " mode=new", "unknown word \"mode\""},
        {parts(q), form + " bits=4", "each once"},
        {parts(q), start + " group_size=sixty", "integers, found \"sixty\""},
        {parts(q), start + " group_size=32", "scales must have shape"},
        {parts(q), "nonsense", "words such as bits=4"}}) {
    const std::string text = told(arrays, said);
    EXPECT_NE(text.find("[load_weights]"), std::string::npos) << text;
    EXPECT_NE(text.find(expected), std::string::npos) << text;
  }
  const std::string text = support::message([] { load_weights("/not/there.safetensors"); });
  EXPECT_NE(text.find("/not/there.safetensors"), std::string::npos) << text;
}

}  // namespace
}  // namespace lattice
