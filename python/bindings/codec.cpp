// The codec of voxel clouds. Arguments only; files are bytes.
#include "lattice/ops/codec.h"

#include "arguments.h"
#include "bind.h"

namespace mx = mlx::core;
using namespace lattice;
using namespace nb::literals;

using Attributes = std::vector<std::pair<std::string, mx::array>>;

// Values by name.
template <>
struct Argument<Attributes> {
  static constexpr auto Name = nb::detail::const_name("collections.abc.Mapping[str, ArrayLike]");
  static Attributes from(nb::handle value, At at) {
    constexpr const char* kExpected = "a dict from names to arrays (N,) or (N, C)";
    if (!nb::isinstance<nb::dict>(value)) wrong_kind(value, at, kExpected);
    Attributes made;
    for (const auto& [name, values] : nb::borrow<nb::dict>(value)) {
      if (!nb::isinstance<nb::str>(name)) wrong_kind(name, at, "names of attributes as str");
      made.emplace_back(nb::cast<std::string>(name), array(values, at));
    }
    return made;
  }
};

void bind_codec(nb::module_& m) {
  using Arrays = nb::typed<nb::dict, std::string, mx::array>;
  nb::class_<VoxelCloud>(m, "VoxelCloud",
                         "What `decode_points` gives: voxels in Morton order and their values.")
      .def_ro("coords", &VoxelCloud::coords, "Voxels (N, 4), int32.")
      .def_prop_ro(
          "attributes",
          [](const VoxelCloud& cloud) {
            nb::dict out;
            for (const auto& [name, values] : cloud.attributes) out[name.c_str()] = values;
            return Arrays(out);
          },
          "Values by name, (N,) or (N, C).")
      .def_ro("voxel_size", &VoxelCloud::voxel_size, "The side of a voxel.")
      .def_prop_ro(
          "origin",
          [](const VoxelCloud& cloud) {
            return std::vector<double>(cloud.origin.begin(), cloud.origin.end());
          },
          "The corner of voxel (0, 0, 0).");
  def(
      m, "encode_points",
      [](const mx::array& coords, const Attributes& attributes, double voxel_size,
         const std::array<double, 3>& origin, const std::string& model, bool fast,
         const std::array<double, 3>& sensor, mx::StreamOrDevice s, const OnProgress& told) {
        const VoxelCloud cloud{coords, attributes, voxel_size, origin};
        const EncodeOptions options{model, fast, sensor};
        const ByteString data = unlocked([&] { return encode_points(cloud, s, told, options); });
        return nb::bytes(data.data(), data.size());
      },
      "coords"_a, "attributes"_a, "voxel_size"_a, "origin"_a, "model"_a, "fast"_a, "sensor"_a,
      "stream"_a, "on_progress"_a);
  def(
      m, "decode_points",
      [](const nb::bytes& data, mx::StreamOrDevice s, const OnProgress& told) {
        const ByteSpan span(static_cast<const uint8_t*>(data.data()), data.size());
        return unlocked([&] { return decode_points(span, s, told); });
      },
      "data"_a, "stream"_a, "on_progress"_a);
}
