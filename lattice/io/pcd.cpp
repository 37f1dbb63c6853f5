// PCD of the Point Cloud Library: ascii, binary and binary_compressed (LZF by column).
#include <cstring>
#include <map>

#include "lattice/io/lzf.h"
#include "lattice/io/table.h"

namespace lattice::io {
namespace {

using Entries = std::map<std::string, std::vector<std::string>>;

constexpr const char* kPadding = "_ ";  // fields named _; a name in a file has no space

bool number_of(const std::string& kind, int64_t size, Number* type) {
  constexpr struct {
    char kind;
    int64_t size;
    Number type;
  } kTypes[] = {{'I', 1, Number::int8},   {'I', 2, Number::int16},  {'I', 4, Number::int32},
                {'I', 8, Number::int64},  {'U', 1, Number::uint8},  {'U', 2, Number::uint16},
                {'U', 4, Number::uint32}, {'U', 8, Number::uint64}, {'F', 4, Number::float32},
                {'F', 8, Number::float64}};
  for (const auto& known : kTypes)
    if (kind.size() == 1 && kind[0] == known.kind && size == known.size) {
      *type = known.type;
      return true;
    }
  return false;
}

Entries entries_of(const std::vector<std::string>& lines) {
  Entries entries;
  for (const std::string& line : lines) {
    std::vector<std::string> words = words_of(line);
    if (words.empty() || words[0][0] == '#') continue;
    const std::string key = words[0];
    words.erase(words.begin());
    if (!entries.emplace(key, words).second) refuse("header line " + quoted(key, 22) + " twice");
  }
  std::vector<std::string> missing;
  for (const char* key : {"FIELDS", "SIZE", "TYPE"})
    if (entries[key].empty()) missing.emplace_back(key);
  if (missing.empty() && !entries.count("POINTS") && !entries.count("WIDTH"))
    missing.emplace_back("POINTS");
  if (!missing.empty()) refuse("header without " + listed(missing));
  return entries;
}

// The fields of one point, from the lines FIELDS, SIZE, TYPE and COUNT.
std::vector<Field> fields_of(const Entries& entries) {
  const auto &names = entries.at("FIELDS"), &sizes = entries.at("SIZE"),
             &kinds = entries.at("TYPE");
  const auto found = entries.find("COUNT");
  const std::vector<std::string> counts =
      found == entries.end() ? std::vector<std::string>(names.size(), "1") : found->second;
  if (sizes.size() != names.size() || kinds.size() != names.size() || counts.size() != names.size())
    refuse(std::to_string(names.size()) + " FIELDS, " + std::to_string(sizes.size()) + " SIZE, " +
           std::to_string(kinds.size()) + " TYPE, " + std::to_string(counts.size()) +
           " COUNT; expected as many of each");
  std::vector<Field> fields;
  for (size_t i = 0; i < names.size(); ++i) {
    const int64_t size = whole(sizes[i], "SIZE of " + quoted(names[i]));
    Number type = Number::float32;
    if (!number_of(kinds[i], size, &type))
      refuse("field " + quoted(names[i], 42) + " of TYPE " + kinds[i].substr(0, 20) + " and SIZE " +
             sizes[i] + ", expected I, U or F of 1, 2, 4 or 8 bytes");
    const int64_t width = whole(counts[i], "COUNT of " + quoted(names[i]), 1, kRowLimit);
    const std::string name = names[i] == "_" ? kPadding + std::to_string(i) : names[i];
    for (const Field& field : fields)
      if (field.name == name) refuse("a field twice: " + quoted(name));
    fields.push_back({name, type, width});
  }
  return fields;
}

int64_t points_of(const Entries& entries) {
  const auto one = [&](const char* key) {
    const auto& words = entries.at(key);
    return whole(words.empty() ? "nothing" : words[0], key);
  };
  const bool area = entries.count("WIDTH") && entries.count("HEIGHT");
  if (!area && !entries.count("POINTS")) refuse("header without POINTS");
  int64_t product = 0;
  if (area) {
    const int64_t width = one("WIDTH"), height = one("HEIGHT");
    product = width && height > INT64_MAX / width ? INT64_MAX : width * height;
  }
  const int64_t points = entries.count("POINTS") ? one("POINTS") : product;
  if (area && product != points)
    refuse("POINTS: found " + std::to_string(points) + ", WIDTH times HEIGHT is " +
           std::to_string(product));
  return points;
}

// The columns one behind the other, compressed together.
void unpack(InputFile& file, Table& table, int64_t row_bytes) {
  const int64_t left = file.size() - table.begin;
  if (left < 8) refuse("truncated before the compressed sizes");
  uint32_t sizes[2];
  file.read(table.begin, reinterpret_cast<char*>(sizes), 8);
  if (static_cast<uint64_t>(table.rows) * static_cast<uint64_t>(row_bytes) != sizes[1])
    refuse(std::to_string(sizes[1]) + " uncompressed bytes, expected " +
           std::to_string(table.rows) + " points of " + std::to_string(row_bytes) + " bytes");
  if (sizes[0] > left - 8)
    refuse(std::to_string(sizes[0]) + " compressed bytes, found " + std::to_string(left - 8) +
           ": truncated");
  table.unpacked = std::make_shared<const std::string>(
      lzf_decompress(file.read(table.begin + 8, sizes[0]), sizes[1]));
  int64_t at = 0;
  for (Field& field : table.fields) {
    field.at = at;
    field.row_bytes = field.width * field.value_bytes;
    at += table.rows * field.row_bytes;
  }
}

// Drops padding; rgb and rgba become `color`.
Cloud finish(std::vector<NamedColumn> columns) {
  std::vector<NamedColumn> kept;
  Column color;
  for (auto& [name, column] : columns) {
    if (name.rfind(kPadding, 0) == 0) continue;
    const bool packed =
        (name == "rgb" || name == "rgba") && number_bytes(column.type) == 4 && column.width == 1;
    if (!packed) {
      kept.emplace_back(name, std::move(column));
      continue;
    }
    if (color.data && name == "rgba") continue;
    char* made = nullptr;
    const int64_t width = name == "rgb" ? 3 : 4;
    color = new_column(Number::uint8, column.rows, width, &made);
    for (int64_t r = 0; r < column.rows; ++r) {
      const char* bgra = static_cast<const char*>(column.data) + r * column.row_bytes;
      for (int64_t j = 0; j < width; ++j) made[r * width + j] = bgra[j < 3 ? 2 - j : 3];
    }
  }
  bool named = false;
  for (const auto& [name, column] : kept) named = named || name == "color";
  if (color.data && !named) kept.emplace_back("color", color);
  return gather(std::move(kept), "fields");
}

}  // namespace

Table read_pcd_header(InputFile& file) {
  Table table;
  const Entries entries = entries_of(file.header_lines("DATA", "PCD", &table.begin));
  table.fields = fields_of(entries);
  const int64_t row_bytes = lay_out(table.fields);
  check_fits(0, row_bytes, 0, "points");
  table.rows = points_of(entries);
  const auto& words = entries.at("DATA");
  const std::string form = words.empty() ? "nothing" : words[0];
  const int64_t left = file.size() - table.begin;
  if (form == "ascii") {
    table.text = true;
    check_fits_text(table.rows, table.fields, left);
  } else if (form == "binary") {
    check_fits(table.rows, row_bytes, left, "points");
  } else if (form == "binary_compressed") {
    unpack(file, table, row_bytes);
  } else {
    refuse("DATA: found " + quoted(form, 42) +
           ", expected one of ascii, binary, binary_compressed");
  }
  table.finish = finish;
  return table;
}

}  // namespace lattice::io
