#include "lattice/program/operation.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <map>

#include "lattice/core/errors.h"

namespace lattice::program {

namespace {

// A mistake of a row of the table: its run function asks for a name that the row does not have.
[[noreturn]] void no_such_name(const NodeView& node, const char* name) {
  throw Error(ErrorCode::internal, "[Program] " + node.place() + " has no `" + name + "`",
              node.node().operation->name, name);
}

[[noreturn]] void wrong_kind(const NodeView& node, const char* operand, const char* expected) {
  throw Error(ErrorCode::argument,
              "[Program] " + node.place() + ": `" + operand + "` must be " + expected,
              node.node().operation->name, operand);
}

// Of equal names the versions ascend.
std::vector<Operation> collect() {
  std::vector<Operation> all;
  for (auto group :
       {array_operations(), conv_operations(), detection_operations(), feature_operations(),
        integer_operations(), layout_operations(), older_operations(), point_operations(),
        pool_operations(), scan_operations(), tensor_operations()})
    std::move(group.begin(), group.end(), std::back_inserter(all));
  std::sort(all.begin(), all.end(), [](const Operation& a, const Operation& b) {
    const int order = std::strcmp(a.name, b.name);
    return order != 0 ? order < 0 : a.version < b.version;
  });
  return all;
}

}  // namespace

const std::vector<Operation>& operations() {
  static const std::vector<Operation> all = collect();
  return all;
}

const Operation* find_operation(std::string_view name, int version) {
  for (const Operation& row : operations())
    if (row.name == name && row.version == version) return &row;
  return nullptr;
}

const Operation* latest_operation(std::string_view name) {
  const Operation* found = nullptr;
  for (const Operation& row : operations())
    if (row.name == name) found = &row;
  return found;
}

std::string NodeView::place() const {
  return "line " + std::to_string(node_.line) + ": " + node_.operation->name + "@" +
         std::to_string(node_.operation->version);
}

size_t NodeView::operand_index(const char* operand) const {
  const auto& operands = node_.operation->operands;
  for (size_t i = 0; i < operands.size(); ++i)
    if (std::strcmp(operands[i].name, operand) == 0) return i;
  no_such_name(*this, operand);
}

const AttributeValue& NodeView::attribute(const char* name) const {
  const auto& attributes = node_.operation->attributes;
  for (size_t i = 0; i < attributes.size(); ++i)
    if (std::strcmp(attributes[i].name, name) == 0) return node_.attributes[i];
  no_such_name(*this, name);
}

bool NodeView::has(const char* name) const {
  return !std::holds_alternative<std::monostate>(attribute(name));
}
bool NodeView::flag(const char* name) const { return std::get<bool>(attribute(name)); }
int64_t NodeView::integer(const char* name) const { return std::get<int64_t>(attribute(name)); }
double NodeView::number(const char* name) const { return std::get<double>(attribute(name)); }
const std::string& NodeView::text(const char* name) const {
  return std::get<std::string>(attribute(name));
}
const std::vector<int64_t>& NodeView::integers(const char* name) const {
  return std::get<std::vector<int64_t>>(attribute(name));
}
const std::vector<double>& NodeView::numbers(const char* name) const {
  return std::get<std::vector<double>>(attribute(name));
}
Triple NodeView::triple(const char* name) const {
  const std::vector<int64_t>& values = integers(name);
  return {values[0], values[1], values[2]};
}
std::optional<int64_t> NodeView::optional_integer(const char* name) const {
  return has(name) ? std::optional(integer(name)) : std::nullopt;
}
std::optional<float> NodeView::optional_number(const char* name) const {
  return has(name) ? std::optional(static_cast<float>(number(name))) : std::nullopt;
}

const ProgramValue& Call::value(const char* operand) const {
  const auto& values = values_[operand_index(operand)];
  if (values.empty()) wrong_kind(*this, operand, "given");
  return *values[0];
}

bool Call::given(const char* operand) const { return !values_[operand_index(operand)].empty(); }

const mx::array& Call::array(const char* operand) const {
  const auto* found = std::get_if<mx::array>(&value(operand));
  if (!found) wrong_kind(*this, operand, "an array");
  return *found;
}

std::optional<mx::array> Call::optional_array(const char* operand) const {
  return given(operand) ? std::optional(array(operand)) : std::nullopt;
}

const SparseTensor& Call::sparse(const char* operand) const {
  const auto* found = std::get_if<SparseTensor>(&value(operand));
  if (!found) wrong_kind(*this, operand, "a sparse tensor");
  return *found;
}

std::optional<SparseTensor> Call::optional_sparse(const char* operand) const {
  return given(operand) ? std::optional(sparse(operand)) : std::nullopt;
}

std::vector<mx::array> Call::arrays(const char* operand) const {
  std::vector<mx::array> all;
  for (const ProgramValue* item : values_[operand_index(operand)]) {
    const auto* found = std::get_if<mx::array>(item);
    if (!found) wrong_kind(*this, operand, "a list of arrays");
    all.push_back(*found);
  }
  return all;
}

std::vector<SparseTensor> Call::sparse_list(const char* operand) const {
  std::vector<SparseTensor> all;
  for (const ProgramValue* item : values_[operand_index(operand)]) {
    const auto* found = std::get_if<SparseTensor>(item);
    if (!found) wrong_kind(*this, operand, "a list of sparse tensors");
    all.push_back(*found);
  }
  return all;
}

const Weight& Call::weight(const char* operand) const {
  const Weight* found = weights_[operand_index(operand)];
  if (!found) wrong_kind(*this, operand, "a tensor of the file");
  return *found;
}

const void* Call::held(const char* operand, const char* kind) const {
  const auto* found = std::get_if<ProgramObject>(&value(operand));
  if (!found || found->kind != kind) wrong_kind(*this, operand, kind);
  return found->held.get();
}

}  // namespace lattice::program
