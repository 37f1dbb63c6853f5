// Makes the bytes of PLY, PCD, NPY, KITTI, nuScenes and .mlat files, and of columns as text.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "lattice/io/formats.h"
#include "lattice/io/lzf.h"
#include "lattice/io/mlat.h"
#include "lattice/io/record.h"
#include "lattice/io/table.h"

namespace lattice::io {
namespace {

std::string one_of(const std::string& encoding, const std::vector<std::string>& known) {
  if (encoding.empty()) return known[0];
  if (std::find(known.begin(), known.end(), encoding) == known.end())
    refuse("encoding '" + encoding + "', expected one of " + listed(known));
  return encoding;
}

std::string ply_bytes(const Cloud& cloud, const std::string& asked) {
  const std::string form = one_of(asked, {"binary_little_endian", "binary_big_endian", "ascii"});
  constexpr std::pair<Number, const char*> kNames[] = {
      {Number::int8, "char"},     {Number::uint8, "uchar"},   {Number::int16, "short"},
      {Number::uint16, "ushort"}, {Number::int32, "int"},     {Number::uint32, "uint"},
      {Number::float32, "float"}, {Number::float64, "double"}};
  std::vector<Number> types;
  for (const auto& [type, name] : kNames) types.push_back(type);
  const std::vector<Out> fields = scatter(cloud, types, "PLY", true);
  std::string out = "ply\nformat " + form + " 1.0\ncomment written by mlx_lattice\n" +
                    "element vertex " + std::to_string(cloud.size()) + "\n";
  for (const Out& field : fields)
    for (const auto& [type, name] : kNames)
      if (type == field.type) out += std::string("property ") + name + " " + field.name + "\n";
  out += "end_header\n";
  if (form == "ascii")
    append_lines(out, fields, " ");
  else
    append_records(out, fields, form == "binary_big_endian");
  return out;
}

// The cloud with its colors as one number per point, 0x00RRGGBB or 0xAARRGGBB.
Cloud with_packed_color(const Cloud& cloud) {
  Cloud made(cloud.points());
  for (const auto& [name, column] : cloud.columns()) {
    if (name == "_" || name == "rgb" || name == "rgba")
      refuse("a column of a PCD file cannot be named '" + name + "', which means " +
             (name == "_" ? "padding" : "packed colors") + " there; rename it");
    if (name != "color" || (column.width != 3 && column.width != 4)) {
      made.column(name, column);
      continue;
    }
    const Column bytes = color8(column);
    char* to = nullptr;
    const Column packed = new_column(Number::uint32, column.rows, 1, &to);
    for (int64_t r = 0; r < column.rows; ++r) {
      uint32_t value = 0;
      for (int64_t j = 0; j < column.width; ++j)
        value |= static_cast<uint32_t>(bytes.at(r, j)) << (j < 3 ? 16 - 8 * j : 24);
      std::memcpy(to + r * 4, &value, sizeof(value));
    }
    made.column(column.width == 3 ? "rgb" : "rgba", packed);
  }
  return made;
}

std::string pcd_header(const std::vector<Out>& fields, const std::string& form) {
  std::string names, sizes, kinds, counts;
  for (const Out& field : fields) {
    const bool normal = field.name == "nx" || field.name == "ny" || field.name == "nz";
    const bool is_float = field.type >= Number::float16;
    const bool is_signed = field.type == Number::int8 || field.type == Number::int16 ||
                           field.type == Number::int32 || field.type == Number::int64;
    names += " " + (normal ? "normal_" + field.name.substr(1) : field.name);
    sizes += " " + std::to_string(number_bytes(field.type));
    kinds += is_float ? " F" : is_signed ? " I" : " U";
    counts += " " + std::to_string(field.source.width);
  }
  const std::string points = std::to_string(fields[0].source.rows);
  return "# .PCD v0.7 - Point Cloud Data file format\nVERSION 0.7\nFIELDS" + names + "\nSIZE" +
         sizes + "\nTYPE" + kinds + "\nCOUNT" + counts + "\nWIDTH " + points +
         "\nHEIGHT 1\nVIEWPOINT 0 0 0 1 0 0 0\nPOINTS " + points + "\nDATA " + form + "\n";
}

std::string pcd_bytes(const Cloud& cloud, const std::string& asked) {
  const std::string form = one_of(asked, {"binary", "binary_compressed", "ascii"});
  const std::vector<Number> types = {
      Number::int8,   Number::int16,  Number::int32,  Number::int64,   Number::uint8,
      Number::uint16, Number::uint32, Number::uint64, Number::float32, Number::float64};
  const std::vector<Out> fields = scatter(with_packed_color(cloud), types, "PCD", false);
  std::string out = pcd_header(fields, form);
  if (form == "ascii") {
    append_lines(out, fields, " ");
  } else if (form == "binary") {
    append_records(out, fields);
  } else {
    const int64_t size = cloud.size() * record_bytes(fields);
    if (size >= int64_t{1} << 32)
      refuse("binary_compressed holds less than 4 GiB, found " + std::to_string(size) +
             " bytes; use binary");
    std::string columns;
    for (const Out& field : fields) append_records(columns, {field});
    const std::string packed = lzf_compress(columns);
    for (const size_t bytes : {packed.size(), columns.size()}) {
      const auto value = static_cast<uint32_t>(bytes);
      out.append(reinterpret_cast<const char*>(&value), sizeof(value));
    }
    out += packed;
  }
  return out;
}

std::string npy_code(Number type) {
  constexpr const char* kCodes[] = {"|b1", "|u1", "|i1", "<u2", "<i2", "<u4",
                                    "<i4", "<u8", "<i8", "<f2", "<f4", "<f8"};
  return std::string("'") + kCodes[static_cast<int>(type)] + "'";
}

std::string npy_bytes(const Cloud& cloud) {
  std::vector<Out> fields;
  constexpr const char* kAxes[] = {"x", "y", "z"};
  for (int i = 0; i < 3; ++i)
    fields.push_back({kAxes[i], one_value(cloud.points(), i), cloud.points().type});
  std::string descr = npy_code(cloud.points().type),
              shape = "(" + std::to_string(cloud.size()) + ", 3)";
  if (!cloud.columns().empty()) {
    for (const auto& [name, column] : cloud.columns()) {
      const bool axis = name == "x" || name == "y" || name == "z";
      if (name.empty() || axis || name.find_first_of("'\\\n") != std::string::npos)
        refuse("a column of an NPY file cannot be named " + quoted(name) + "; rename it");
      fields.push_back({name, column, column.type});
    }
    descr = "[";
    for (const Out& field : fields)
      descr += std::string(descr.size() > 1 ? ", " : "") + "('" + field.name + "', " +
               npy_code(field.type) +
               (field.source.width > 1 ? ", (" + std::to_string(field.source.width) + ",)" : "") +
               ")";
    descr += "]";
    shape = "(" + std::to_string(cloud.size()) + ",)";
  }
  std::string header = "{'descr': " + descr + ", 'fortran_order': False, 'shape': " + shape + ", }";
  // Version 2 has longer headers than 1, version 3 names that are not ASCII.
  const bool ascii = std::all_of(header.begin(), header.end(), [](char c) { return c > 0; });
  const bool small = header.size() < 65000 && ascii;
  const size_t before = small ? 10 : 12;
  header.append(63 - (before + header.size()) % 64, ' ');
  header += '\n';
  const auto length = static_cast<uint32_t>(header.size());
  std::string out("\x93NUMPY", 6);
  out += small ? '\1' : ascii ? '\2' : '\3';
  out += '\0';
  out.append(reinterpret_cast<const char*>(&length), before - 8);
  out += header;
  append_records(out, fields);
  return out;
}

// float32 may lose this much of a coordinate, in the unit of the file.
constexpr double kPrecision = 0.005;

void check_precision(const Column& points) {
  if (points.type == Number::float32) return;
  double most = 0;
  for (int64_t r = 0; r < points.rows; ++r)
    for (int64_t j = 0; j < 3; ++j) {
      const double value = points.at(r, j);
      if (std::isfinite(value))
        most = std::max(most, std::abs(value - static_cast<double>(static_cast<float>(value))));
    }
  if (most <= kPrecision) return;
  char text[32];
  std::snprintf(text, sizeof(text), "%.3g", most);
  refuse("float32, which the file holds, moves the points by up to " + std::string(text) +
         "; subtract an origin first (cloud.local()), or write .npz, .las or .ply");
}

std::string scan_bytes(const Cloud& cloud, bool rings) {
  std::vector<std::string> others;
  for (const auto& [name, column] : cloud.columns())
    if (name != "intensity" && !(rings && name == "ring")) others.push_back(name);
  std::sort(others.begin(), others.end());
  if (!others.empty())
    refuse("a " + std::string(rings ? "nuScenes" : "KITTI") + " file has no place for " +
           listed(others) + "; drop them or write .ply");
  std::vector<Out> fields;
  for (int i = 0; i < 3; ++i) fields.push_back({"", one_value(cloud.points(), i), Number::float32});
  const float zero = 0;
  const Column none{Number::float32, &zero, cloud.size(), 1, 0, 4, {}};  // one zero for all points
  for (const char* name : {"intensity", "ring"}) {
    if (!rings && name[0] == 'r') break;
    const Column* column = cloud.find(name);
    if (column && column->width != 1)
      refuse("column '" + std::string(name) + "' has " + std::to_string(column->width) +
             " values per point, expected one");
    fields.push_back({name, column ? *column : none, Number::float32});
  }
  check_precision(cloud.points());
  std::string out;
  append_records(out, fields);
  return out;
}

std::string text_bytes(const Cloud& cloud, const std::string& separator) {
  const std::vector<Out> fields = scatter(
      cloud, {Number::uint8, Number::int32, Number::int64, Number::float32, Number::float64},
      "text", true);
  std::string out;
  for (const Out& field : fields) out += (out.empty() ? "" : separator) + field.name;
  out += '\n';
  append_lines(out, fields, separator);
  return out;
}

}  // namespace

std::string cloud_bytes(const Cloud& cloud, const CloudWriteOptions& options) {
  if (options.format == "text") return text_bytes(cloud, options.encoding);
  if (options.format == "ply") return ply_bytes(cloud, options.encoding);
  if (options.format == "pcd") return pcd_bytes(cloud, options.encoding);
  if (!options.encoding.empty())
    refuse("encoding '" + options.encoding + "': format " + options.format + " has one form");
  if (options.format == "npy") return npy_bytes(cloud);
  if (options.format == "mlat") {
    const ByteString bytes = encode_points(voxels_of(cloud, options.voxel_size));
    return {bytes.begin(), bytes.end()};
  }
  return scan_bytes(cloud, options.format == "nuscenes");
}

}  // namespace lattice::io
