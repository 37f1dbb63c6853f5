// The codec of voxel clouds. Arguments only; files are bytes.
#include "lattice/ops/codec.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>

#include "bind.h"
#include "lattice/core/errors.h"

namespace mx = mlx::core;
using namespace lattice;

void bind_codec(nb::module_& m) {
  nb::class_<VoxelCloud>(m, "VoxelCloud",
                         "What decode_points gives: voxels in Morton order and their values.")
      .def_ro("coords", &VoxelCloud::coords)
      .def_prop_ro("attributes",
                   [](const VoxelCloud& cloud) {
                     nb::dict out;
                     for (const auto& [name, values] : cloud.attributes) out[name.c_str()] = values;
                     return out;
                   })
      .def_ro("voxel_size", &VoxelCloud::voxel_size)
      .def_ro("origin", &VoxelCloud::origin);
  m.def(
      "encode_points",
      [](const mx::array& coords, const nb::dict& attributes, double voxel_size,
         const std::array<double, 3>& origin, mx::StreamOrDevice s) {
        VoxelCloud cloud{coords, {}, voxel_size, origin};
        for (const auto& [name, values] : attributes) {
          if (!nb::isinstance<nb::str>(name) || !nb::isinstance<mx::array>(values))
            throw TypeError("[encode_points] attributes must map names to mx.array, found " +
                            std::string(nb::repr(name).c_str()) + " with a " +
                            nb::type_name(values.type()).c_str() + "; convert it with mx.array()");
          cloud.attributes.emplace_back(nb::cast<std::string>(name), nb::cast<mx::array>(values));
        }
        ByteString data;
        {
          Release release;
          data = encode_points(cloud, s);
        }
        return nb::bytes(data.data(), data.size());
      },
      nb::arg("coords"), nb::arg("attributes") = nb::dict(), nb::kw_only(),
      nb::arg("voxel_size") = 1.0, nb::arg("origin") = std::array<double, 3>{},
      nb::arg("stream") = nb::none(),
      "Distinct int32 voxels (N, 4) and named values (N,) or (N, C) as one compressed, lossless "
      "file.");
  m.def(
      "decode_points",
      [](const nb::bytes& data, mx::StreamOrDevice s) {
        const ByteSpan span(static_cast<const uint8_t*>(data.data()), data.size());
        Release release;
        return decode_points(span, s);
      },
      nb::arg("data"), nb::kw_only(), nb::arg("stream") = nb::none(),
      "The VoxelCloud of encode_points.");
}
