#include "lattice/program/cloud_program.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cmath>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/program/json_reader.h"

namespace lattice::program {

namespace {

constexpr const char* kPoints = "points";

bool is_finite(const Column& points, int64_t row) {
  return std::isfinite(points.at(row, 0)) && std::isfinite(points.at(row, 1)) &&
         std::isfinite(points.at(row, 2));
}

// float32 positions. Coordinates of maps would lose their millimeters, so that float64 is taken
// relative to its low corner; voxel_features does the same, and finds a corner of 0.
mx::array positions(const Column& points, bool keep_place) {
  const auto n = static_cast<int>(points.rows);
  std::array<double, 3> low{0, 0, 0};
  if (points.type == Number::float64 && !keep_place) {
    bool any = false;
    for (int64_t r = 0; r < n; ++r) {
      if (!is_finite(points, r)) continue;
      const std::array<double, 3> p{points.at(r, 0), points.at(r, 1), points.at(r, 2)};
      for (int axis = 0; axis < 3; ++axis) low[axis] = any ? std::min(low[axis], p[axis]) : p[axis];
      any = true;
    }
  }
  cpu::Buffer<float> made(int64_t{n} * 3);
  for (int64_t r = 0; r < n; ++r)
    for (int axis = 0; axis < 3; ++axis)
      made[r * 3 + axis] = static_cast<float>(points.at(r, axis) - low[axis]);
  return adopt(std::move(made), {n, 3});
}

// A column as the pipeline reads it: 8 and 16 bits become 0..1. Values of points that are not
// finite do not matter.
mx::array scaled(const char* operation, const Column& points, const Column& column,
                 const ProgramPort& port) {
  const auto n = static_cast<int>(column.rows), width = static_cast<int>(column.width);
  const double scale = column.type == Number::uint8    ? 255.0
                       : column.type == Number::uint16 ? 65535.0
                                                       : 1.0;
  cpu::Buffer<float> made(int64_t{n} * width);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t j = 0; j < width; ++j) {
      const auto value = static_cast<float>(column.at(r, j) / scale);
      if (!std::isfinite(value) && is_finite(points, r))
        refuse(operation, port.name, "column \"" + port.name + "\" has values that are not finite");
      made[r * width + j] = value;
    }
  return adopt(std::move(made), port.type.shape.size() == 1 ? mx::Shape{n} : mx::Shape{n, width});
}

// [[0, "ground"], [40, "road"]].
std::vector<std::pair<int64_t, std::string>> read_classes(const std::string& text) {
  std::vector<std::pair<int64_t, std::string>> made;
  if (text.empty()) return made;
  program::JsonReader reader(text);
  reader.expect('[');
  if (!reader.take(']')) {
    do {
      reader.expect('[');
      const int64_t value = reader.integer();
      reader.expect(',');
      made.emplace_back(value, reader.text());
      reader.expect(']');
    } while (reader.take(','));
    reader.expect(']');
  }
  reader.end();
  return made;
}

int64_t width_of(const ProgramPort& port) {
  return port.type.shape.size() > 1 ? port.type.shape[1] : 1;
}

}  // namespace

void refuse(const char* operation, const std::string& argument, const std::string& text,
            ErrorCode code) {
  throw Error(code, "[" + std::string(operation) + "] " + text, operation, argument);
}

CloudProgram CloudProgram::load(const char* operation, const std::string& path, int threads,
                                const ProgramLimits& limits, const char* output, const char* cure) {
  if (threads < 0)
    refuse(operation, "threads", "threads must be 0 or more, found " + std::to_string(threads));
  if (threads > 0) cpu::set_thread_count(threads);
  const Program program = Program::load(path);
  const auto has = [](const std::vector<ProgramPort>& ports, const char* name) {
    return std::any_of(ports.begin(), ports.end(),
                       [&](const ProgramPort& port) { return port.name == name; });
  };
  if (!has(program.inputs(), kPoints) || !has(program.outputs(), output))
    refuse(operation, path,
           path + ": the program has no input `points` or no output `" + output + "`; " + cure,
           ErrorCode::file);
  const auto calls = [&](const char* name) {
    return program.text().find(std::string(" = ") + name + "@") != std::string::npos;
  };
  return {program, limits, calls("crop_points") || calls("point_voxels"),
          read_classes(program.note("classes"))};
}

void CloudProgram::check_size(const char* operation, const Cloud& cloud) const {
  const int64_t most = limits.max_points;
  if ((most > 0 && cloud.size() > most) || cloud.size() > INT32_MAX)
    refuse(operation, "cloud",
           "the cloud has " + std::to_string(cloud.size()) + " points, the limit max_points is " +
               std::to_string(most > 0 ? most : INT32_MAX),
           ErrorCode::limit);
}

ProgramValues CloudProgram::inputs(const char* operation, const Cloud& cloud) const {
  ProgramValues inputs;
  for (const ProgramPort& port : program.inputs()) {
    if (port.name == kPoints) {
      inputs.emplace(kPoints, positions(cloud.points(), keeps_place));
      continue;
    }
    const Column* found = cloud.find(port.name);
    if (!found)
      refuse(operation, port.name,
             "the cloud has no column \"" + port.name + "\", which the network was trained with");
    if (found->width != width_of(port))
      refuse(operation, port.name,
             "column \"" + port.name + "\" has " + std::to_string(found->width) +
                 " values per point, expected " + std::to_string(width_of(port)));
    inputs.emplace(port.name, scaled(operation, cloud.points(), *found, port));
  }
  return inputs;
}

std::vector<std::pair<std::string, int64_t>> CloudProgram::columns() const {
  std::vector<std::pair<std::string, int64_t>> made;
  for (const ProgramPort& port : program.inputs())
    if (port.name != kPoints) made.emplace_back(port.name, width_of(port));
  return made;
}

mx::array output_of(const char* operation, const ProgramValues& outputs, const char* name,
                    mx::Dtype dtype) {
  return evaluated(mx::astype(std::get<mx::array>(outputs.at(name)), dtype, mx::Device::cpu),
                   operation, name);
}

}  // namespace lattice::program
