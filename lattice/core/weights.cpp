#include "lattice/core/weights.h"

#include <charconv>
#include <map>
#include <sstream>
#include <stdexcept>
#include <vector>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/features/conv.h"

namespace lattice {
namespace {

constexpr const char* kName = "QuantizedWeight";
constexpr const char* kLayouts[] = {"linear", "kernel_major", "dense_5d"};

void check_shape(const char* what, const mx::array& a, const mx::Shape& expected) {
  if (a.shape() != expected)
    fail(kName, std::string(what) + " must have shape " + shape_text(expected) + ", got " +
                    shape_text(a.shape()));
}

int64_t number(const std::string& form, const std::string& text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(kName, "form must hold integers, found \"" + text + "\" in \"" + form + "\"");
  return value;
}

Triple numbers(const std::string& form, const std::string& text) {
  std::istringstream rest(text);
  std::string part;
  std::vector<int64_t> found;
  while (std::getline(rest, part, ',')) found.push_back(number(form, part));
  if (found.size() != 3)
    fail(kName, "form must have a kernel_size of 3 integers, got \"" + form + "\"");
  return {found[0], found[1], found[2]};
}

}  // namespace

const char* layout_name(WeightLayout layout) { return kLayouts[static_cast<int>(layout)]; }

WeightLayout layout_named(const std::string& name) {
  for (int i = 0; i < 3; ++i)
    if (name == kLayouts[i]) return static_cast<WeightLayout>(i);
  fail(kName, "layout must be \"linear\", \"kernel_major\" or \"dense_5d\", got \"" + name + "\"");
}

int64_t default_group_size(int64_t in_channels) { return in_channels >= 64 ? 64 : 32; }

void check_packing(const std::string& operation, int64_t bits, int64_t group_size) {
  if (bits != 4 && bits != 8) fail(operation, "bits must be 4 or 8, got " + std::to_string(bits));
  if (group_size != 32 && group_size != 64 && group_size != 128)
    fail(operation, "group_size must be 32, 64 or 128, got " + std::to_string(group_size));
}

QuantizedWeight::QuantizedWeight(QuantizedParts parts)
    : weight_(std::move(parts.weight)),
      scales_(std::move(parts.scales)),
      biases_(std::move(parts.biases)),
      group_size_(parts.group_size),
      bits_(parts.bits),
      in_channels_(parts.in_channels),
      out_channels_(parts.out_channels),
      kernel_size_(KernelSpec(parts.kernel_size, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}).size),
      layout_(parts.layout) {
  check_packing("QuantizedWeight", bits_, group_size_);
  if (in_channels_ < 1 || out_channels_ < 1 || in_channels_ > INT32_MAX / 2 ||
      out_channels_ > INT32_MAX)
    fail(kName, "in_channels and out_channels must be >= 1 and fit 32 bits, got " +
                    std::to_string(in_channels_) + " and " + std::to_string(out_channels_));
  if (layout_ == WeightLayout::linear && n_k() != 1)
    fail(kName, "layout linear must have kernel_size (1, 1, 1), got " + triple_text(kernel_size_));
  if (weight_.dtype() != mx::uint32)
    fail(kName, "weight must be uint32, got " + graph::dtype_name(weight_.dtype()));
  if (!is_float(scales_.dtype()))
    fail(kName,
         "scales must be float32, float16 or bfloat16, got " + graph::dtype_name(scales_.dtype()));
  if (biases_.dtype() != scales_.dtype())
    fail(kName, "biases must have the dtype of the scales, got " +
                    graph::dtype_name(biases_.dtype()) + " and " +
                    graph::dtype_name(scales_.dtype()));
  const auto shape = [&](int64_t inner) {
    const int k = static_cast<int>(n_k()), i = static_cast<int>(inner),
              m = static_cast<int>(out_channels_);
    return k == 1 ? mx::Shape{k, m, i} : mx::Shape{k, i, m};
  };
  check_shape("weight", weight_, shape(storage_in_channels() * bits_ / 32));
  check_shape("scales", scales_, shape(storage_in_channels() / group_size_));
  check_shape("biases", biases_, shape(storage_in_channels() / group_size_));
}

int64_t QuantizedWeight::storage_in_channels() const {
  return (in_channels_ + group_size_ - 1) / group_size_ * group_size_;
}

size_t QuantizedWeight::nbytes() const {
  return weight_.nbytes() + scales_.nbytes() + biases_.nbytes();
}

mx::Shape QuantizedWeight::dense_shape() const {
  const int in = static_cast<int>(in_channels_), out = static_cast<int>(out_channels_);
  const auto size = [&](size_t axis) { return static_cast<int>(kernel_size_[axis]); };
  switch (layout_) {
    case WeightLayout::linear:
      return {out, in};
    case WeightLayout::kernel_major:
      return {static_cast<int>(n_k()), in, out};
    default:
      return {out, size(0), size(1), size(2), in};
  }
}

std::string QuantizedWeight::text() const {
  return "QuantizedWeight(" + std::string(layout_name(layout_)) + " " + shape_text(dense_shape()) +
         " as int" + std::to_string(bits_) + ", groups of " + std::to_string(group_size_) + ", " +
         graph::dtype_name(dtype()) + ", " + std::to_string(nbytes()) + " bytes)";
}

std::string QuantizedWeight::form() const {
  const auto& [x, y, z] = kernel_size_;
  std::ostringstream out;
  out << "layout=" << layout_name(layout_) << " kernel_size=" << x << "," << y << "," << z
      << " in_channels=" << in_channels_ << " out_channels=" << out_channels_ << " bits=" << bits_
      << " group_size=" << group_size_;
  return out.str();
}

QuantizedWeight with_form(QuantizedParts parts, const std::string& form) {
  std::map<std::string, std::string> words;
  std::istringstream text(form);
  for (std::string word; text >> word;) {
    const size_t at = word.find('=');
    if (at == std::string::npos || !words.emplace(word.substr(0, at), word.substr(at + 1)).second)
      fail(kName, "form must be words such as bits=4, each once, got \"" + form + "\"");
  }
  const auto take = [&](const char* name) {
    const auto found = words.find(name);
    if (found == words.end())
      fail(kName, std::string("form must have ") + name + ", got \"" + form + "\"");
    return words.extract(found).mapped();
  };
  parts.layout = layout_named(take("layout"));
  parts.kernel_size = numbers(form, take("kernel_size"));
  parts.in_channels = number(form, take("in_channels"));
  parts.out_channels = number(form, take("out_channels"));
  parts.bits = number(form, take("bits"));
  parts.group_size = number(form, take("group_size"));
  if (!words.empty())
    fail(kName,
         "form has the unknown word \"" + words.begin()->first + "\"; a newer library wrote it");
  return QuantizedWeight(std::move(parts));
}

size_t PackedKernel::nbytes() const { return panels_ ? panels_->blocks.nbytes() : 0; }

}  // namespace lattice
