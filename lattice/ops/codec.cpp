#include "lattice/ops/codec.h"

#include <mlx/ops.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <set>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/coordinate_set.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/coding/attributes.h"
#include "lattice/kernels/cpu/coding/lidar.h"
#include "lattice/kernels/cpu/coding/octree.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/curves.h"

namespace lattice {
namespace {

using cpu::Buffer;
using cpu::ByteReader;
using cpu::put;
using cpu::throw_bad_data;

constexpr std::string_view kEncode = "encode_points", kDecode = "decode_points";
constexpr std::string_view kMagic = "MLAT", kGrid = "GRID", kCoords = "COOR", kValues = "ATTR";
constexpr uint16_t kOctreeVersion = 1, kLidarVersion = 2;
enum Coder : uint8_t { kMixed = 1, kFast = 2 };  // of version 2
constexpr std::string_view kModelName = "lidar";

ByteSpan as_bytes(std::string_view text) {
  return {reinterpret_cast<const uint8_t*>(text.data()), text.size()};
}

// Types of attributes; the place is the number in the file.
const std::array<mx::Dtype, 8> kTypes{mx::uint8,  mx::int8,  mx::uint16,  mx::int16,
                                      mx::uint32, mx::int32, mx::float16, mx::float32};

cpu::ValueKind kind_of(mx::Dtype dtype) {
  return {static_cast<int>(mx::size_of(dtype)), mx::issubdtype(dtype, mx::floating)};
}

// Tag, length, checksum of both and of the content, content.
void put_section(ByteString& out, std::string_view tag, ByteSpan content) {
  const size_t begin = out.size();
  cpu::put_bytes(out, as_bytes(tag));
  put(out, uint64_t{content.size()});
  put(out, cpu::crc32c(content, cpu::crc32c(ByteSpan(out).subspan(begin, 12))));
  cpu::put_bytes(out, content);
}

struct Section {
  std::string_view tag;
  ByteSpan content;
};
Section next_section(ByteReader& reader) {
  const ByteSpan head = reader.bytes(12);
  const uint32_t sum = reader.number<uint32_t>();
  const ByteSpan content = reader.bytes(cpu::get<uint64_t>(head.data() + 4));
  if (cpu::crc32c(content, cpu::crc32c(head)) != sum)
    throw_bad_data(kDecode, "is damaged: the checksum of a section does not fit");
  return {{reinterpret_cast<const char*>(head.data()), 4}, content};
}
ByteSpan section_of(ByteReader& reader, std::string_view tag) {
  const Section section = next_section(reader);
  if (section.tag != tag) throw_bad_data(kDecode, "lacks its section " + std::string(tag));
  return section.content;
}

mx::array checked_attribute(const std::string& name, const mx::array& values, int64_t rows) {
  const std::string head = "attribute '" + name + "'";
  if ((values.ndim() != 1 && values.ndim() != 2) || values.shape(0) != rows ||
      (values.ndim() == 2 && (values.shape(1) < 1 || values.shape(1) > 65535)))
    fail(kEncode, head + " must have shape (" + std::to_string(rows) + ",) or (" +
                      std::to_string(rows) + ", C) with 1 <= C <= 65535, got " +
                      shape_text(values.shape()));
  if (std::find(kTypes.begin(), kTypes.end(), values.dtype()) == kTypes.end())
    fail(kEncode, head + " must hold integers or floats of 1, 2 or 4 bytes, got " +
                      graph::dtype_name(values.dtype()));
  if (name.size() > 255) fail(kEncode, head + " must have a name of at most 255 bytes");
  return evaluated(values, kEncode, head);
}

// The bytes of the rows in another order.
ByteString rows_in_order(const mx::array& values, const Buffer<int32_t>& order) {
  const size_t step =
      values.shape(0) == 0 ? 0 : values.nbytes() / static_cast<size_t>(values.shape(0));
  ByteString out(values.nbytes());
  for (int64_t p = 0; p < order.size(); ++p)
    std::memcpy(out.data() + static_cast<size_t>(p) * step,
                values.data<uint8_t>() + static_cast<size_t>(order[p]) * step, step);
  return out;
}

ByteString attribute_section(const std::string& name, const mx::array& values,
                             const Buffer<int32_t>& order, std::span<const int32_t> sorted,
                             cpu::Meter meter) {
  const int channels = values.ndim() == 2 ? values.shape(1) : 1;
  ByteString out;
  put(out, static_cast<uint8_t>(name.size()));
  cpu::put_bytes(out, as_bytes(name));
  put(out, static_cast<uint8_t>(std::find(kTypes.begin(), kTypes.end(), values.dtype()) -
                                kTypes.begin()));
  put(out, static_cast<uint8_t>(values.ndim()));
  put(out, static_cast<uint16_t>(channels));
  const ByteString coded = cpu::encode_values(sorted, rows_in_order(values, order), channels,
                                              kind_of(values.dtype()), meter);
  cpu::put_bytes(out, coded);
  return out;
}

template <typename T>
mx::array copied(const std::vector<T>& values, mx::Shape shape, mx::Dtype dtype) {
  Buffer<T> buffer(static_cast<int64_t>(values.size()));
  std::copy(values.begin(), values.end(), buffer.begin());
  return adopt(std::move(buffer), std::move(shape), dtype);
}

std::pair<std::string, mx::array> read_attribute(ByteSpan content, std::span<const int32_t> sorted,
                                                 cpu::Meter meter) {
  ByteReader reader(content, kDecode);
  const ByteSpan name = reader.bytes(reader.number<uint8_t>());
  const uint8_t type = reader.number<uint8_t>(), ndim = reader.number<uint8_t>();
  const int channels = reader.number<uint16_t>();
  if (type >= kTypes.size() || channels < 1 || (ndim != 2 && (ndim != 1 || channels != 1)))
    throw_bad_data(kDecode, "has an attribute of an unknown kind");
  const mx::Dtype dtype = kTypes[type];
  const auto values =
      cpu::decode_values(sorted, reader.rest(), channels, kind_of(dtype), kDecode, meter);
  const int rows = static_cast<int>(sorted.size() / 4);
  return {std::string(reinterpret_cast<const char*>(name.data()), name.size()),
          copied(values, ndim == 1 ? mx::Shape{rows} : mx::Shape{rows, channels}, dtype)};
}

void check_grid(double voxel_size, const std::array<double, 3>& origin, const auto& fail) {
  bool good = std::isfinite(voxel_size) && voxel_size > 0;
  for (double v : origin) good = good && std::isfinite(v);
  if (!good) fail();
}

// The voxel of the sensor.
std::array<int32_t, 3> sensor_voxel(const VoxelCloud& cloud, const std::array<double, 3>& sensor) {
  std::array<int32_t, 3> voxel;
  for (size_t a = 0; a < 3; ++a) {
    const double v = std::floor((sensor[a] - cloud.origin[a]) / cloud.voxel_size);
    voxel[a] = static_cast<int32_t>(std::clamp(v, -0x1p31, 0x1p31 - 1));
  }
  return voxel;
}

// The content of COOR in version 2.
ByteString lidar_coords(const cpu::CoordSpan& sorted, const std::array<int32_t, 3>& sensor,
                        bool fast, cpu::Meter meter) {
  const cpu::LidarNet& net = cpu::LidarNet::shipped();
  ByteString out;
  put(out, static_cast<uint8_t>(fast ? kFast : kMixed));
  put(out, net.identity());
  put(out, static_cast<uint8_t>(kModelName.size()));
  cpu::put_bytes(out, as_bytes(kModelName));
  for (int32_t v : sensor) put(out, static_cast<uint32_t>(v));
  cpu::put_bytes(out, cpu::encode_lidar(sorted, {&net, fast, sensor}, kEncode, meter));
  return out;
}

std::string hexadecimal(uint64_t value) {
  std::string text;
  for (int shift = 60; shift >= 0; shift -= 4) text += "0123456789abcdef"[value >> shift & 15];
  return text;
}

std::vector<int32_t> read_lidar_coords(ByteSpan content, cpu::Meter meter) {
  ByteReader reader(content, kDecode);
  const uint8_t coder = reader.number<uint8_t>();
  const uint64_t identity = reader.number<uint64_t>();
  const ByteSpan given = reader.bytes(reader.number<uint8_t>());
  const std::string name(reinterpret_cast<const char*>(given.data()), given.size());
  const cpu::LidarNet& net = cpu::LidarNet::shipped();
  if (name != kModelName || identity != net.identity())
    throw_bad_data(kDecode, "needs the model '" + name + "' with the identity " +
                                hexadecimal(identity) + "; this library has 'lidar' with " +
                                hexadecimal(net.identity()) +
                                ". Decode it with the version of the library that wrote it");
  if (coder != kMixed && coder != kFast)
    throw_bad_data(kDecode, "has the coder " + std::to_string(coder) + ", expected 1 or 2");
  std::array<int32_t, 3> sensor;
  for (int32_t& v : sensor) v = static_cast<int32_t>(reader.number<uint32_t>());
  return cpu::decode_lidar(reader.rest(), {&net, coder == kFast, sensor}, kDecode, meter);
}

struct Coords {
  uint16_t version;
  ByteString content;
};
// The rows by the model that the options name.
Coords coded_coords(const VoxelCloud& cloud, const cpu::CoordSpan& sorted,
                    const EncodeOptions& options, const OnProgress& told, double share) {
  const bool octree = options.model == "octree", both = options.model == "auto";
  if (!octree && !both && options.model != kModelName)
    fail(kEncode, "model must be 'octree', 'lidar' or 'auto', got '" + options.model + "'");
  if (octree && options.fast) fail(kEncode, "fast needs the model 'lidar' or 'auto', got 'octree'");
  for (double v : options.sensor)
    if (!std::isfinite(v)) fail(kEncode, "sensor must be finite");
  const double half = both ? share / 2 : share;
  Coords best{kOctreeVersion, {}};
  if (octree || both) best.content = cpu::encode_octree(sorted, kEncode, {told, 0, half});
  if (octree) return best;
  Coords lidar{kLidarVersion, lidar_coords(sorted, sensor_voxel(cloud, options.sensor),
                                           options.fast, {told, both ? half : 0, share})};
  return both && best.content.size() <= lidar.content.size() ? best : lidar;
}

struct Head {
  uint16_t version, sections;
};
Head read_head(ByteReader& reader) {
  const ByteSpan magic = reader.bytes(4);
  if (std::memcmp(magic.data(), kMagic.data(), 4) != 0)
    throw_bad_data(kDecode, "does not begin with MLAT");
  const uint16_t version = reader.number<uint16_t>(), sections = reader.number<uint16_t>();
  if (version != kOctreeVersion && version != kLidarVersion)
    throw_bad_data(kDecode, "has version " + std::to_string(version) + ", expected 1 or 2");
  if (sections < 2)
    throw_bad_data(kDecode, "has " + std::to_string(sections) + " sections, expected 2 or more");
  return {version, sections};
}

// Coordinates take about as long as four bytes of values for each voxel.
constexpr double kBytesOfCoords = 4;

double bytes_of_voxel(const VoxelCloud& cloud) {
  double bytes = kBytesOfCoords;
  for (const auto& [name, values] : cloud.attributes)
    bytes += static_cast<double>(values.itemsize()) * (values.ndim() == 2 ? values.shape(1) : 1);
  return bytes;
}

}  // namespace

ByteString encode_points(const VoxelCloud& cloud, mx::StreamOrDevice, const OnProgress& on_progress,
                         const EncodeOptions& options) {
  const CoordinateSet set(cloud.coords, kEncode);
  if (set.dtype() != mx::int32)
    fail(kEncode, "coords must be int32, got " + graph::dtype_name(set.dtype()));
  check_grid(cloud.voxel_size, cloud.origin,
             [] { fail(kEncode, "voxel_size must be positive and finite, origin finite"); });
  const Buffer<int32_t> order = cpu::morton_order(set.span());
  std::vector<int32_t> sorted(static_cast<size_t>(set.rows()) * 4);
  cpu::take_rows(set.span(), order.span(), sorted.data());

  const double bytes = bytes_of_voxel(cloud);
  double share = kBytesOfCoords / bytes;
  const Coords coords =
      coded_coords(cloud, {sorted.data(), set.rows(), false}, options, on_progress, share);
  ByteString out, grid;
  cpu::put_bytes(out, as_bytes(kMagic));
  put(out, coords.version);
  if (cloud.attributes.size() > 65533) fail(kEncode, "attributes must be at most 65533");
  put(out, static_cast<uint16_t>(2 + cloud.attributes.size()));
  put(grid, std::bit_cast<uint64_t>(cloud.voxel_size));
  for (double v : cloud.origin) put(grid, std::bit_cast<uint64_t>(v));
  put_section(out, kGrid, grid);
  put_section(out, kCoords, coords.content);
  std::set<std::string> names;
  for (const auto& [name, values] : cloud.attributes) {
    const mx::array checked = checked_attribute(name, values, set.rows());
    if (!names.insert(name).second) fail(kEncode, "attribute '" + name + "' is given twice");
    const double width = static_cast<double>(checked.nbytes()) / std::max(set.rows(), int64_t{1});
    const double until = share + width / bytes;
    put_section(out, kValues,
                attribute_section(name, checked, order, sorted, {on_progress, share, until}));
    share = until;
  }
  return out;
}

VoxelCloud decode_points(ByteSpan data, mx::StreamOrDevice, const OnProgress& on_progress) {
  ByteReader reader(data, kDecode);
  const auto [version, sections] = read_head(reader);
  const ByteSpan grid = section_of(reader, kGrid);
  if (grid.size() != 32) throw_bad_data(kDecode, "has a section GRID of another size");
  const auto real = [&](size_t i) {
    return std::bit_cast<double>(cpu::get<uint64_t>(grid.data() + 8 * i));
  };
  const std::array<double, 3> origin{real(1), real(2), real(3)};
  check_grid(real(0), origin,
             [] { throw_bad_data(kDecode, "has a grid that is not finite and positive"); });
  const auto share = [&](size_t left) {
    return 1 - static_cast<double>(left) / static_cast<double>(data.size());
  };
  double from = share(reader.rest().size());
  const auto meter = [&] {
    const double begin = from;
    from = share(reader.rest().size());
    return cpu::Meter(on_progress, begin, from);
  };
  const ByteSpan coords = section_of(reader, kCoords);
  const std::vector<int32_t> sorted = version == kOctreeVersion
                                          ? cpu::decode_octree(coords, kDecode, meter())
                                          : read_lidar_coords(coords, meter());
  VoxelCloud cloud{
      copied(sorted, {static_cast<int>(sorted.size() / 4), 4}, mx::int32), {}, real(0), origin};
  std::set<std::string> names;
  for (int i = 2; i < sections; ++i) {
    const ByteSpan values = section_of(reader, kValues);
    cloud.attributes.push_back(read_attribute(values, sorted, meter()));
    if (!names.insert(cloud.attributes.back().first).second)
      throw_bad_data(kDecode, "has two attributes of one name");
  }
  if (!reader.rest().empty()) throw_bad_data(kDecode, "has bytes after its end");
  return cloud;
}

int64_t encoded_rows(ByteSpan data) {
  ByteReader reader(data, kDecode);
  const Head head = read_head(reader);
  section_of(reader, kGrid);
  ByteReader coords(section_of(reader, kCoords), kDecode);
  if (head.version == kLidarVersion) {
    coords.bytes(9);
    coords.bytes(coords.number<uint8_t>() + uint64_t{12});
  }
  const uint64_t rows = coords.number<uint64_t>();
  if (rows > INT32_MAX) throw_bad_data(kDecode, "claims more than 2^31 rows");
  return static_cast<int64_t>(rows);
}

}  // namespace lattice
