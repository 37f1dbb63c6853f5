#include "lattice/program/safetensors.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/program/json_reader.h"

namespace lattice::program {

namespace {

constexpr uint64_t kMostHeader = 100 << 20;

[[noreturn]] void refuse(const std::string& what) {
  throw Error(ErrorCode::file, "[Program.load] " + what, "Program.load", "path");
}

struct Kind {
  std::string_view name;
  mx::Dtype dtype;
};
const std::array<Kind, 12> kKinds{{{"F32", mx::float32},
                                   {"F16", mx::float16},
                                   {"BF16", mx::bfloat16},
                                   {"I8", mx::int8},
                                   {"I16", mx::int16},
                                   {"I32", mx::int32},
                                   {"I64", mx::int64},
                                   {"U8", mx::uint8},
                                   {"U16", mx::uint16},
                                   {"U32", mx::uint32},
                                   {"U64", mx::uint64},
                                   {"BOOL", mx::bool_}}};

struct Entry {
  std::string name;
  std::optional<mx::Dtype> dtype;
  std::vector<int64_t> shape, offsets;
};

Entry read_entry(JsonReader& json, std::string name) {
  Entry entry{std::move(name), std::nullopt, {}, {}};
  bool shaped = false;
  json.expect('{');
  while (!json.take('}')) {
    if (entry.dtype || shaped || !entry.offsets.empty()) json.expect(',');
    const std::string key = json.text();
    json.expect(':');
    if (key == "dtype" && !entry.dtype) {
      const std::string found = json.text();
      for (const Kind& kind : kKinds)
        if (kind.name == found) entry.dtype = kind.dtype;
      if (!entry.dtype) json.fail("unknown dtype \"" + found + "\" of " + entry.name);
    } else if (key == "shape" && !shaped) {
      entry.shape = json.integers();
      shaped = true;
    } else if (key == "data_offsets" && entry.offsets.empty()) {
      entry.offsets = json.integers();
      if (entry.offsets.size() != 2) json.fail("data_offsets must be two numbers");
    } else {
      json.fail("unknown key \"" + key + "\" of " + entry.name);
    }
  }
  if (!entry.dtype || !shaped || entry.offsets.empty())
    json.fail(entry.name + " must have dtype, shape and data_offsets");
  return entry;
}

std::map<std::string, std::string> read_notes(JsonReader& json) {
  std::map<std::string, std::string> notes;
  json.expect('{');
  while (!json.take('}')) {
    if (!notes.empty()) json.expect(',');
    const std::string key = json.text();
    json.expect(':');
    if (!notes.emplace(key, json.text()).second) json.fail("\"" + key + "\" stands twice");
  }
  return notes;
}

uint64_t bytes_of(const Entry& entry) {
  uint64_t bytes = mx::size_of(*entry.dtype);
  for (const int64_t n : entry.shape) {
    if (n < 0 || n > std::numeric_limits<int32_t>::max())
      refuse(entry.name + ": a size must be in 0..2147483647");
    bytes *= static_cast<uint64_t>(n);
    if (bytes > (uint64_t{1} << 42)) refuse(entry.name + " is larger than the file");
  }
  return bytes;
}

// Offsets in the order of the data, which they must cover without gap.
void check_cover(std::vector<Entry>& entries, uint64_t size) {
  std::sort(entries.begin(), entries.end(),
            [](const Entry& a, const Entry& b) { return a.offsets < b.offsets; });
  uint64_t at = 0;
  for (const Entry& entry : entries) {
    const auto begin = static_cast<uint64_t>(entry.offsets[0]),
               end = static_cast<uint64_t>(entry.offsets[1]);
    if (begin != at || end < begin || end > size || end - begin != bytes_of(entry))
      refuse(entry.name + ": offsets " + std::to_string(entry.offsets[0]) + ".." +
             std::to_string(entry.offsets[1]) +
             " do not fit its shape and the tensor before it; the file is damaged or cut");
    at = end;
  }
  if (at != size)
    refuse("the tensors end at byte " + std::to_string(at) + " of " + std::to_string(size) +
           " bytes of data; the file is damaged or cut");
}

std::vector<std::byte> raw_bytes(const mx::array& value) {
  mx::array flat = mx::contiguous(value);
  mx::eval(flat);
  std::vector<std::byte> bytes(flat.nbytes());
  if (!bytes.empty()) std::memcpy(bytes.data(), flat.data<uint8_t>(), bytes.size());
  return bytes;
}

}  // namespace

TensorFile read_tensors(std::span<const std::byte> bytes) {
  uint64_t length = 0;
  if (bytes.size() < 8) refuse("the file has fewer than 8 bytes; it is no safetensors file");
  for (size_t i = 0; i < 8; ++i) length |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  if (length > kMostHeader || length > bytes.size() - 8)
    refuse("the header of " + std::to_string(length) +
           " bytes does not fit the file; it is no safetensors file, or it is cut");
  JsonReader json({reinterpret_cast<const char*>(bytes.data()) + 8, static_cast<size_t>(length)});
  TensorFile file;
  std::vector<Entry> entries;
  bool first = true;
  json.expect('{');
  while (!json.take('}')) {
    if (!first) json.expect(',');
    first = false;
    const std::string key = json.text();
    json.expect(':');
    if (key == "__metadata__") {
      if (!json.take_null()) file.notes = read_notes(json);  // MLX writes null for none
    } else {
      entries.push_back(read_entry(json, key));
    }
  }
  json.end();
  const auto data = bytes.subspan(8 + static_cast<size_t>(length));
  check_cover(entries, data.size());
  for (const Entry& entry : entries) {
    const mx::Shape shape(entry.shape.begin(), entry.shape.end());
    const mx::array value =
        new_array(data.data() + static_cast<size_t>(entry.offsets[0]), shape, *entry.dtype);
    if (!file.arrays.emplace(entry.name, value).second) refuse(entry.name + " stands twice");
  }
  return file;
}

std::string read_bytes(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (!std::filesystem::is_regular_file(status))
    refuse(path + (std::filesystem::exists(status) ? " is no file" : " does not exist"));
  const auto size = std::filesystem::file_size(path, error);
  std::ifstream in(path, std::ios::binary);
  if (error || !in) refuse(path + " cannot be opened");
  std::string bytes(static_cast<size_t>(size), '\0');
  if (!in.read(bytes.data(), static_cast<std::streamsize>(size))) refuse(path + " cannot be read");
  return bytes;
}

std::string write_tensors(const TensorFile& file) {
  std::vector<std::pair<std::string, mx::array>> order(file.arrays.begin(), file.arrays.end());
  std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return mx::size_of(a.second.dtype()) > mx::size_of(b.second.dtype());
  });
  std::string header = "{\"__metadata__\":{", data;
  for (const auto& [key, value] : file.notes) {
    if (header.back() != '{') header += ',';
    header += json_text(key) + ':' + json_text(value);
  }
  header += '}';
  for (const auto& [name, value] : order) {
    const std::vector<std::byte> bytes = raw_bytes(value);
    const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&dtype = value](const Kind& k) {
      return k.dtype == dtype.dtype();
    });
    if (kind == kKinds.end()) refuse(name + " has a dtype that a file cannot hold");
    header += ',' + json_text(name) + ":{\"dtype\":\"" + std::string(kind->name) + "\",\"shape\":[";
    for (size_t i = 0; i < value.ndim(); ++i) {
      if (i) header += ',';
      header += std::to_string(value.shape(static_cast<int>(i)));
    }
    header += "],\"data_offsets\":[" + std::to_string(data.size());
    data.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    header += ',' + std::to_string(data.size()) + "]}";
  }
  header += '}';
  header.resize((header.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  for (size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((header.size() >> (8 * i)) & 0xFF);
  return bytes + header + data;
}

}  // namespace lattice::program
