// Files of point clouds. Arguments only; columns are NumPy arrays.
#include "arguments.h"
#include "bind.h"
#include "columns.h"
#include "lattice/core/cloud.h"
#include "lattice/io/cloud_files.h"
#include "lattice/io/formats.h"
#include "lattice/io/mlat.h"
#include "lattice/io/table.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using OnProgress = std::function<void(double)>;

// (points, {name: values}).
nb::tuple python_of(const Cloud& cloud) {
  nb::dict columns;
  for (const auto& [name, column] : cloud.columns())
    columns[nb::steal<nb::str>(PyUnicode_DecodeUTF8(
        name.data(), static_cast<Py_ssize_t>(name.size()), "replace"))] = numpy_of(column);
  return nb::make_tuple(numpy_of(cloud.points(), true), columns);
}

Cloud cloud_of(nb::handle points, const nb::dict& columns) {
  Cloud cloud(column_of(points));
  for (const auto& [name, values] : columns) {
    const std::string key = nb::cast<std::string>(name);
    const Column column = column_of(values);
    if (column.width < 1)
      throw std::invalid_argument("column '" + key +
                                  "': found no value per point, expected some; drop it");
    cloud.column(key, column);
  }
  return cloud;
}

}  // namespace

void bind_io(nb::module_& m) {
  def(
      m, "read_cloud",
      [](const std::string& path, const std::string& format, const OnProgress& told) {
        return python_of(unlocked([&] { return read_cloud(path, {format, told}); }));
      },
      "path"_a, "format"_a, "on_progress"_a);
  m.def(
      "cloud_bytes",
      [](nb::handle points, const nb::dict& columns, const std::string& format,
         const std::string& encoding, double voxel_size) {
        const Cloud cloud = cloud_of(points, columns);
        const std::string bytes =
            unlocked([&] { return io::cloud_bytes(cloud, {format, encoding, voxel_size}); });
        return nb::bytes(bytes.data(), bytes.size());
      },
      "points"_a, "columns"_a, "format"_a, "encoding"_a, "voxel_size"_a = 0.0,
      "The bytes of a file.");
  m.def(
      "gather_columns",
      [](const nb::dict& fields, const std::string& what) {
        std::vector<NamedColumn> columns;
        for (const auto& [name, values] : fields)
          columns.emplace_back(nb::cast<std::string>(name), column_of(values));
        return python_of(io::gather(std::move(columns), what));
      },
      "fields"_a, "what"_a, "(points, columns) of the fields of a file.");
  m.def(
      "scan_format", [](const std::string& path) { return io::scan_format(path); }, "path"_a,
      "\"kitti\" or \"nuscenes\".");
  m.def(
      "voxel_centers",
      [](const VoxelCloud& voxels) {
        return python_of(unlocked([&] { return io::cloud_of(voxels); }));
      },
      "voxels"_a, "(points, columns) of a decoded file.");
}
