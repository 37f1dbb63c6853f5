// Translates the names of columns: files have many names for the same thing, and the library has
// one.
#include <algorithm>
#include <cstring>

#include "lattice/io/table.h"

namespace lattice::io {
namespace {

struct Group {
  const char* name;
  std::vector<std::vector<std::string>> sets;
};

// Three or four columns that together make one.
const std::vector<Group>& groups() {
  static const std::vector<Group> kGroups = {
      {"color",
       {{"red", "green", "blue", "alpha"},
        {"r", "g", "b", "a"},
        {"diffuse_red", "diffuse_green", "diffuse_blue", "diffuse_alpha"}}},
      {"normal", {{"nx", "ny", "nz"}, {"normal_x", "normal_y", "normal_z"}}}};
  return kGroups;
}

const std::vector<Group>& aliases() {
  static const std::vector<Group> kAliases = {
      {"intensity", {{"scalar_intensity", "reflectance", "scalar_reflectance"}}},
      {"label",
       {{"classification", "class", "class_id", "semantic", "scalar_label",
         "scalar_classification"}}}};
  return kAliases;
}

bool has(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

bool is_float(Number type) { return type >= Number::float16; }
bool is_signed(Number type) {
  return type == Number::int8 || type == Number::int16 || type == Number::int32 ||
         type == Number::int64;
}

// The type that holds the values of both.
Number common(Number a, Number b) {
  if (a == b) return a;
  if (is_float(a) || is_float(b)) {
    const bool narrow = (a == Number::float32 || a == Number::float16 || number_bytes(a) <= 2) &&
                        (b == Number::float32 || b == Number::float16 || number_bytes(b) <= 2);
    return narrow ? Number::float32 : Number::float64;
  }
  const int64_t bytes = std::max(number_bytes(a), number_bytes(b));
  if (is_signed(a) == is_signed(b)) return number_bytes(a) == bytes ? a : b;
  const int64_t unsigned_bytes = number_bytes(is_signed(a) ? b : a);
  const int64_t needed = std::max(bytes, 2 * unsigned_bytes);
  return needed == 2   ? Number::int16
         : needed == 4 ? Number::int32
         : needed == 8 ? Number::int64
                       : Number::float64;
}

template <typename T>
void stack_as(const std::vector<const Column*>& parts, char* to) {
  T* values = reinterpret_cast<T*>(to);
  const auto width = static_cast<int64_t>(parts.size());
  for (int64_t j = 0; j < width; ++j)
    for (int64_t r = 0; r < parts[j]->rows; ++r)
      values[r * width + j] = static_cast<T>(parts[j]->at(r, 0));
}

template <size_t kBytes>
void interleave(const Column& from, int64_t width, char* to) {
  const char* value = static_cast<const char*>(from.data);
  for (int64_t r = 0; r < from.rows; ++r)
    std::memcpy(to + r * width * static_cast<int64_t>(kBytes), value + r * from.row_bytes, kBytes);
}

// Columns of one value side by side.
Column stack(const std::vector<const Column*>& parts, Number type) {
  char* to = nullptr;
  const int64_t rows = parts[0]->rows, width = static_cast<int64_t>(parts.size());
  Column made = new_column(type, rows, width, &to);
  bool same = true;
  for (const Column* part : parts) same = same && part->type == type;
  if (same) {
    const int64_t bytes = number_bytes(type);
    for (int64_t j = 0; j < width; ++j) {
      char* place = to + j * bytes;
      if (bytes == 1) interleave<1>(*parts[j], width, place);
      if (bytes == 2) interleave<2>(*parts[j], width, place);
      if (bytes == 4) interleave<4>(*parts[j], width, place);
      if (bytes == 8) interleave<8>(*parts[j], width, place);
    }
    return made;
  }
  if (type == Number::float32) stack_as<float>(parts, to);
  if (type == Number::float64) stack_as<double>(parts, to);
  if (type == Number::int16) stack_as<int16_t>(parts, to);
  if (type == Number::int32) stack_as<int32_t>(parts, to);
  if (type == Number::int64) stack_as<int64_t>(parts, to);
  if (type == Number::uint16) stack_as<uint16_t>(parts, to);
  if (type == Number::uint32) stack_as<uint32_t>(parts, to);
  if (type == Number::uint64) stack_as<uint64_t>(parts, to);
  if (type == Number::uint8) stack_as<uint8_t>(parts, to);
  return made;
}

// The fields that are left, by their names without case: x before X.
class Fields {
 public:
  explicit Fields(std::vector<NamedColumn> fields) : fields_(std::move(fields)) {}

  const NamedColumn* find(const std::string& name) const {
    const NamedColumn* found = nullptr;
    for (const NamedColumn& field : fields_) {
      if (field.first == name) return &field;
      if (!found && lower(field.first) == name) found = &field;
    }
    return found;
  }
  NamedColumn take(const std::string& name) {
    const auto place = fields_.begin() + (find(name) - fields_.data());
    NamedColumn taken = std::move(*place);
    fields_.erase(place);
    return taken;
  }
  bool has_exactly(const std::string& name) const {
    const NamedColumn* found = find(name);
    return found && found->first == name;
  }
  const std::vector<NamedColumn>& all() const { return fields_; }
  std::vector<std::string> names() const {
    std::vector<std::string> made;
    for (const NamedColumn& field : fields_) made.push_back(field.first);
    return made;
  }

 private:
  std::vector<NamedColumn> fields_;
};

Cloud take_points(Fields& fields, const std::string& what) {
  std::vector<std::string> missing;
  for (const char* axis : {"x", "y", "z"})
    if (!fields.find(axis)) missing.emplace_back(axis);
  if (!missing.empty()) {
    const std::vector<std::string> names = fields.names();
    refuse(what + " without " + listed(missing) + "; found " +
           (names.empty() ? "nothing" : listed(names)));
  }
  std::vector<Column> axes;
  for (const char* axis : {"x", "y", "z"}) axes.push_back(fields.take(axis).second);
  bool exact = true;
  for (const Column& axis : axes) {
    if (axis.width != 1) refuse(what + " must have one number per point in each of x, y and z");
    exact = exact && (axis.type == Number::float32 || number_bytes(axis.type) <= 2);
  }
  return Cloud(stack({&axes[0], &axes[1], &axes[2]}, exact ? Number::float32 : Number::float64));
}

// Colors and normals: three or four of the fields make one column.
void take_groups(Fields& fields, Cloud& cloud) {
  for (const Group& group : groups())
    for (const auto& parts : group.sets) {
      std::vector<std::string> found;
      for (const std::string& part : parts)
        if (fields.find(part)) found.push_back(part);
      bool fits = found.size() >= 3 && !fields.has_exactly(group.name) &&
                  std::equal(parts.begin(), parts.begin() + 3, found.begin());
      for (const std::string& part : found) fits = fits && fields.find(part)->second.width == 1;
      if (!fits) continue;
      std::vector<Column> taken;
      for (const std::string& part : found) taken.push_back(fields.take(part).second);
      Number type = taken[0].type;
      std::vector<const Column*> columns;
      for (const Column& column : taken) {
        type = common(type, column.type);
        columns.push_back(&column);
      }
      cloud.column(group.name, stack(columns, type));
      break;
    }
}

}  // namespace

Cloud gather(std::vector<NamedColumn> given, const std::string& what) {
  Fields fields(std::move(given));
  Cloud cloud = take_points(fields, what);
  take_groups(fields, cloud);
  std::vector<std::string> taken;
  for (const std::string& name : fields.names()) taken.push_back(lower(name));
  for (const auto& [name, column] : fields.all()) {
    std::string ours = name;
    for (const Group& alias : aliases()) {
      if (lower(name) == alias.name) ours = alias.name;
      if (ours == name && has(alias.sets[0], lower(name)) && !has(taken, alias.name) &&
          !cloud.find(alias.name))
        ours = alias.name;
    }
    // `Intensity` beside `intensity` keeps its own name.
    if (ours != name && (fields.has_exactly(ours) || cloud.find(ours))) ours = name;
    cloud.column(ours, column);
  }
  return cloud;
}

}  // namespace lattice::io
