// Reads and writes compressed voxels (.mlat, docs/codec.md) as clouds.
//
// Reading gives the centers of the voxels with their values. Writing keeps one point per voxel:
// colors, intensities, normals and floats are the mean of its points, rounded for integers; of
// other integers (labels) the first one stays. The format holds up to 32 bits. A column of 64 bits
// is two attributes, NAME:f8.high and NAME:f8.low.
#include "lattice/io/mlat.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "lattice/core/arrays.h"
#include "lattice/io/input_file.h"
#include "lattice/io/table.h"

namespace lattice::io {
namespace {

constexpr std::pair<Number, const char*> kWide[] = {
    {Number::float64, "f8"}, {Number::int64, "i8"}, {Number::uint64, "u8"}};

Number number_of(mx::Dtype dtype) {
  switch (dtype.val()) {
    case mx::uint8.val():
      return Number::uint8;
    case mx::int8.val():
      return Number::int8;
    case mx::uint16.val():
      return Number::uint16;
    case mx::int16.val():
      return Number::int16;
    case mx::uint32.val():
      return Number::uint32;
    case mx::int32.val():
      return Number::int32;
    case mx::float16.val():
      return Number::float16;
    default:
      return Number::float32;
  }
}

mx::Dtype dtype_of(Number type) {
  switch (type) {
    case Number::int8:
      return mx::int8;
    case Number::uint16:
      return mx::uint16;
    case Number::int16:
      return mx::int16;
    case Number::uint32:
      return mx::uint32;
    case Number::int32:
      return mx::int32;
    case Number::float16:
      return mx::float16;
    case Number::float32:
      return mx::float32;
    default:
      return mx::uint8;
  }
}

Column column_of(const mx::array& given) {
  const auto a = std::make_shared<mx::array>(evaluated(given, "read_cloud", "attribute"));
  const int64_t rows = a->shape(0), width = a->ndim() > 1 ? a->shape(1) : 1;
  const int64_t bytes = static_cast<int64_t>(a->itemsize());
  return {number_of(a->dtype()), a->data<void>(), rows, width, width * bytes, bytes, a};
}

mx::array array_of(const Column& column) {
  mx::Shape shape{static_cast<int>(column.rows)};
  if (column.width > 1) shape.push_back(static_cast<int>(column.width));
  return new_array(column.data, shape, dtype_of(column.type));
}

// Columns of 64 bits from their halves; other columns as they are.
void add_columns(const VoxelCloud& voxels, Cloud& cloud) {
  const auto find = [&](const std::string& name) -> const mx::array* {
    for (const auto& [known, values] : voxels.attributes)
      if (known == name) return &values;
    return nullptr;
  };
  for (const auto& [name, values] : voxels.attributes) {
    bool half = false;
    for (const auto& [type, code] : kWide) {
      const std::string high = std::string(":") + code + ".high",
                        low = std::string(":") + code + ".low";
      const auto stem = [&](const std::string& end) {
        const bool ends = name.size() > end.size() &&
                          name.compare(name.size() - end.size(), end.size(), end) == 0;
        return ends ? name.substr(0, name.size() - end.size()) : std::string();
      };
      if (!stem(low).empty() && find(stem(low) + high)) half = true;  // its other half tells
      const mx::array* other = stem(high).empty() ? nullptr : find(stem(high) + low);
      if (!other || values.dtype() != mx::uint32 || other->dtype() != mx::uint32 ||
          other->shape() != values.shape())
        continue;
      const Column upper = column_of(values), lower_half = column_of(*other);
      char* to = nullptr;
      const Column joined = new_column(type, upper.rows, upper.width, &to);
      for (int64_t i = 0; i < upper.rows * upper.width; ++i) {
        const uint64_t bits = uint64_t{static_cast<const uint32_t*>(upper.data)[i]} << 32 |
                              static_cast<const uint32_t*>(lower_half.data)[i];
        std::memcpy(to + i * 8, &bits, sizeof(bits));
      }
      cloud.column(stem(high), joined);
      half = true;
    }
    if (!half && (values.ndim() < 2 || values.shape(1) > 0)) cloud.column(name, column_of(values));
  }
}

// float32 if it resolves a hundredth of a voxel, else float64.
Column centers(const VoxelCloud& voxels) {
  const mx::array coords = evaluated(voxels.coords, "read_cloud", "coords");
  const int64_t rows = coords.shape(0);
  char* to = nullptr;
  const Column points = new_column(Number::float64, rows, 3, &to);
  auto* values = reinterpret_cast<double*>(to);
  double most = 0;
  for (int64_t r = 0; r < rows; ++r)
    for (int j = 0; j < 3; ++j) {
      const int32_t cell = coords.data<int32_t>()[r * 4 + 1 + j];
      values[r * 3 + j] = voxels.origin[j] + (cell + 0.5) * voxels.voxel_size;
      most = std::max(most, std::abs(values[r * 3 + j]));
    }
  if (rows && !(most * 0x1p-23 < voxels.voxel_size / 100)) return points;
  char* narrow = nullptr;
  const Column made = new_column(Number::float32, rows, 3, &narrow);
  for (int64_t i = 0; i < rows * 3; ++i)
    reinterpret_cast<float*>(narrow)[i] = static_cast<float>(values[i]);
  return made;
}

// Rows of the finite points, by voxel and then by row, and where each voxel begins.
struct Cells {
  std::array<double, 3> origin{};
  std::vector<std::array<int32_t, 3>> of_point;
  std::vector<int64_t> rows, begins;
  int64_t voxels() const { return static_cast<int64_t>(begins.size()) - 1; }
};

Cells cells_of(const Column& points, double size) {
  Cells cells;
  std::vector<int64_t>& rows = cells.rows;
  bool any = false;
  for (int64_t r = 0; r < points.rows; ++r) {
    const std::array<double, 3> p{points.at(r, 0), points.at(r, 1), points.at(r, 2)};
    if (!std::isfinite(p[0]) || !std::isfinite(p[1]) || !std::isfinite(p[2])) continue;
    for (int j = 0; j < 3; ++j) cells.origin[j] = any ? std::min(cells.origin[j], p[j]) : p[j];
    any = true;
    rows.push_back(r);
  }
  cells.of_point.resize(static_cast<size_t>(points.rows));
  for (const int64_t r : rows)
    for (int j = 0; j < 3; ++j) {
      const double cell = std::floor((points.at(r, j) - cells.origin[j]) / size);
      if (!(cell <= 0x1p31 - 1))
        refuse("voxel_size " + std::to_string(size) + ": the points span more than 2^31 voxels");
      cells.of_point[r][j] = static_cast<int32_t>(cell);
    }
  std::stable_sort(rows.begin(), rows.end(),
                   [&](int64_t a, int64_t b) { return cells.of_point[a] < cells.of_point[b]; });
  for (size_t i = 0; i < rows.size(); ++i)
    if (i == 0 || cells.of_point[rows[i]] != cells.of_point[rows[i - 1]])
      cells.begins.push_back(static_cast<int64_t>(i));
  cells.begins.push_back(static_cast<int64_t>(rows.size()));
  return cells;
}

template <typename T>
void reduce_as(const Column& column, const Cells& cells, bool mean, char* to) {
  T* made = reinterpret_cast<T*>(to);
  for (int64_t v = 0; v < cells.voxels(); ++v)
    for (int64_t j = 0; j < column.width; ++j, ++made) {
      const int64_t begin = cells.begins[v], end = cells.begins[v + 1];
      // One value stays as it is, also beyond 2^53.
      std::memcpy(made,
                  static_cast<const std::byte*>(column.data) +
                      cells.rows[begin] * column.row_bytes + j * column.value_bytes,
                  sizeof(T));
      if (!mean || end - begin == 1) continue;
      double sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += column.at(cells.rows[i], j);
      sum /= static_cast<double>(end - begin);
      *made = static_cast<T>(std::is_integral_v<T> ? std::nearbyint(sum) : sum);
    }
}

// One value per voxel.
Column reduced(const std::string& name, const Column& given, const Cells& cells) {
  const bool mean =
      name == "color" || name == "intensity" || name == "normal" || given.type >= Number::float16;
  Column column = given;
  if (column.type == Number::boolean) column.type = Number::uint8;
  const bool half = column.type == Number::float16;  // C++20 has no such type
  char* to = nullptr;
  Column made = new_column(half ? Number::float32 : column.type, cells.voxels(), column.width, &to);
  if (half) {
    auto* values = reinterpret_cast<float*>(to);
    for (int64_t v = 0; v < cells.voxels(); ++v)
      for (int64_t j = 0; j < column.width; ++j) {
        double sum = 0;
        const int64_t begin = cells.begins[v], end = cells.begins[v + 1];
        for (int64_t i = begin; i < end; ++i) sum += column.at(cells.rows[i], j);
        *values++ = static_cast<float>(sum / static_cast<double>(end - begin));
      }
    return made;
  }
  switch (column.type) {
    case Number::int8:
      reduce_as<int8_t>(column, cells, mean, to);
      break;
    case Number::uint16:
      reduce_as<uint16_t>(column, cells, mean, to);
      break;
    case Number::int16:
      reduce_as<int16_t>(column, cells, mean, to);
      break;
    case Number::uint32:
      reduce_as<uint32_t>(column, cells, mean, to);
      break;
    case Number::int32:
      reduce_as<int32_t>(column, cells, mean, to);
      break;
    case Number::uint64:
      reduce_as<uint64_t>(column, cells, mean, to);
      break;
    case Number::int64:
      reduce_as<int64_t>(column, cells, mean, to);
      break;
    case Number::float32:
      reduce_as<float>(column, cells, mean, to);
      break;
    case Number::float64:
      reduce_as<double>(column, cells, mean, to);
      break;
    default:
      reduce_as<uint8_t>(column, cells, mean, to);
  }
  return made;
}

// 64 bits as two attributes of 32, or as one where the values are small.
void add_attributes(const std::string& name, const Column& column,
                    std::vector<std::pair<std::string, mx::array>>& made) {
  const char* code = nullptr;
  for (const auto& [type, known] : kWide)
    if (column.type == type) code = known;
  if (!code) {
    made.emplace_back(name, array_of(column));
    return;
  }
  const int64_t n = column.rows * column.width;
  const bool is_signed = column.type == Number::int64;
  bool small = column.type != Number::float64;
  for (int64_t i = 0; i < n && small; ++i) {
    const double value = column.at(0, i);
    small = is_signed ? value >= -0x1p31 && value < 0x1p31 : value < 0x1p32;
  }
  char *high = nullptr, *low = nullptr;
  const Number type = small && is_signed ? Number::int32 : Number::uint32;
  const Column upper = new_column(type, column.rows, column.width, &high);
  const Column lower_half = new_column(type, column.rows, column.width, &low);
  for (int64_t i = 0; i < n; ++i) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char*>(column.data) + i * 8, sizeof(bits));
    const uint32_t halves[] = {static_cast<uint32_t>(bits >> 32), static_cast<uint32_t>(bits)};
    std::memcpy(high + i * 4, &halves[0], 4);
    std::memcpy(low + i * 4, &halves[1], 4);
  }
  if (small) {
    made.emplace_back(name, array_of(lower_half));
    return;
  }
  made.emplace_back(name + ":" + code + ".high", array_of(upper));
  made.emplace_back(name + ":" + code + ".low", array_of(lower_half));
}

}  // namespace

VoxelCloud voxels_of(const Cloud& cloud, double voxel_size) {
  if (!(voxel_size > 0) || !std::isfinite(voxel_size))
    refuse("voxel_size must be above 0 and finite for a .mlat file, found " +
           std::to_string(voxel_size));
  const Cells cells = cells_of(cloud.points(), voxel_size);
  char* to = nullptr;
  const Column coords = new_column(Number::int32, cells.voxels(), 4, &to);
  auto* values = reinterpret_cast<int32_t*>(to);
  for (int64_t v = 0; v < cells.voxels(); ++v) {
    const std::array<int32_t, 3>& cell = cells.of_point[cells.rows[cells.begins[v]]];
    values[v * 4] = 0;
    std::copy(cell.begin(), cell.end(), values + v * 4 + 1);
  }
  VoxelCloud made{array_of(coords), {}, voxel_size, cells.origin};
  for (const auto& [name, column] : cloud.columns())
    add_attributes(name, reduced(name, column, cells), made.attributes);
  return made;
}

Cloud cloud_of(const VoxelCloud& voxels) {
  Cloud cloud(centers(voxels));
  add_columns(voxels, cloud);
  return cloud;
}

Cloud read_mlat(const std::string& path, const std::function<void(double)>& on_progress) {
  InputFile file(path);
  const std::string bytes = file.read(0, file.size());
  const ByteSpan span(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  return cloud_of(decode_points(span, {}, on_progress));
}

}  // namespace lattice::io
