#include "lattice/program/segmenter.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/program/json_reader.h"
#include "lattice/program/program.h"

namespace lattice {
namespace {

constexpr const char* kPoints = "points";
constexpr const char* kLabels = "labels";

[[noreturn]] void refuse(const char* operation, const std::string& argument,
                         const std::string& text, ErrorCode code = ErrorCode::argument) {
  throw Error(code, "[" + std::string(operation) + "] " + text, operation, argument);
}

// Whatever happens inside becomes an Error.
template <typename F>
auto guarded(const char* operation, const F& f) {
  try {
    return f();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    refuse(operation, "", "the machine has no memory left", ErrorCode::memory);
  } catch (const std::logic_error& error) {
    throw Error(ErrorCode::argument, error.what(), operation);
  } catch (const std::exception& error) {
    throw Error(ErrorCode::internal, error.what(), operation);
  }
}

// float32 positions. Coordinates of maps would lose their millimeters, so that float64 is taken
// relative to its low corner; voxel_features does the same, and finds a corner of 0.
mx::array positions(const Column& points, bool keep_place) {
  const auto n = static_cast<int>(points.rows);
  std::array<double, 3> low{0, 0, 0};
  if (points.type == Number::float64 && !keep_place) {
    bool any = false;
    for (int64_t r = 0; r < n; ++r) {
      const std::array<double, 3> p{points.at(r, 0), points.at(r, 1), points.at(r, 2)};
      if (!std::isfinite(p[0]) || !std::isfinite(p[1]) || !std::isfinite(p[2])) continue;
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

bool any_finite(const Column& points) {
  for (int64_t r = 0; r < points.rows; ++r)
    if (std::isfinite(points.at(r, 0)) && std::isfinite(points.at(r, 1)) &&
        std::isfinite(points.at(r, 2)))
      return true;
  return false;
}

// A column as the pipeline reads it: 8 and 16 bits become 0..1.
mx::array scaled(const Column& column, const ProgramPort& port) {
  const auto n = static_cast<int>(column.rows), width = static_cast<int>(column.width);
  const double scale = column.type == Number::uint8    ? 255.0
                       : column.type == Number::uint16 ? 65535.0
                                                       : 1.0;
  cpu::Buffer<float> made(int64_t{n} * width);
  for (int64_t r = 0; r < n; ++r)
    for (int64_t j = 0; j < width; ++j) {
      const auto value = static_cast<float>(column.at(r, j) / scale);
      if (!std::isfinite(value))
        refuse("Segmenter::label", port.name,
               "column \"" + port.name + "\" has values that are not finite");
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

struct Segmenter::State {
  Program program;
  ProgramLimits limits;
  bool crops;  // then positions keep their place
  std::vector<std::pair<int64_t, std::string>> classes;
};

Segmenter Segmenter::load(const std::string& path, const SegmenterOptions& options) {
  constexpr const char* kName = "Segmenter::load";
  return guarded(kName, [&] {
    if (options.threads < 0)
      refuse(kName, "threads",
             "threads must be 0 or more, found " + std::to_string(options.threads));
    if (options.threads > 0) cpu::set_thread_count(options.threads);
    const Program program = Program::load(path);
    const auto has = [](const std::vector<ProgramPort>& ports, const char* name) {
      return std::any_of(ports.begin(), ports.end(),
                         [&](const ProgramPort& port) { return port.name == name; });
    };
    if (!has(program.inputs(), kPoints) || !has(program.outputs(), kLabels))
      refuse(kName, path,
             path +
                 ": the program has no input `points` or no output `labels`; export the network "
                 "with its pipeline: model.export(path, example=cloud, pipeline=pipeline)",
             ErrorCode::file);
    return Segmenter(
        std::make_shared<State>(State{program,
                                      {options.max_points, options.max_rows, options.max_bytes},
                                      program.text().find(" = crop_points@") != std::string::npos,
                                      read_classes(program.note("classes"))}));
  });
}

void Segmenter::label(const Cloud& cloud, std::span<int32_t> labels) const {
  constexpr const char* kName = "Segmenter::label";
  if (static_cast<int64_t>(labels.size()) != cloud.size())
    refuse(kName, "labels",
           "labels has room for " + std::to_string(labels.size()) + " points, the cloud has " +
               std::to_string(cloud.size()));
  guarded(kName, [&] {
    const int64_t most = state_->limits.max_points;
    if ((most > 0 && cloud.size() > most) || cloud.size() > INT32_MAX)
      refuse(kName, "cloud",
             "the cloud has " + std::to_string(cloud.size()) + " points, the limit max_points is " +
                 std::to_string(most > 0 ? most : INT32_MAX),
             ErrorCode::limit);
    if (!any_finite(cloud.points())) {  // there is no voxel, and nothing for a network to do
      std::fill(labels.begin(), labels.end(), -1);
      return;
    }
    ProgramValues inputs;
    for (const ProgramPort& port : state_->program.inputs()) {
      if (port.name == kPoints) {
        inputs.emplace(kPoints, positions(cloud.points(), state_->crops));
        continue;
      }
      const Column* found = cloud.find(port.name);
      if (!found)
        refuse(kName, port.name,
               "the cloud has no column \"" + port.name + "\", which the network was trained with");
      if (found->width != width_of(port))
        refuse(kName, port.name,
               "column \"" + port.name + "\" has " + std::to_string(found->width) +
                   " values per point, expected " + std::to_string(width_of(port)));
      inputs.emplace(port.name, scaled(*found, port));
    }
    Session session = state_->program.session(state_->limits);
    const ProgramValues outputs = session.run(inputs);
    const mx::array made =
        evaluated(mx::astype(std::get<mx::array>(outputs.at(kLabels)), mx::int32, mx::Device::cpu),
                  kName, kLabels);
    if (made.size() != labels.size())
      refuse(kName, kLabels,
             "the program gave " + std::to_string(made.size()) + " labels for " +
                 std::to_string(labels.size()) + " points",
             ErrorCode::file);
    if (made.size()) std::memcpy(labels.data(), made.data<int32_t>(), made.nbytes());
  });
}

void Segmenter::label(const Cloud& cloud, std::vector<int32_t>& labels) const {
  guarded("Segmenter::label", [&] { labels.resize(static_cast<size_t>(cloud.size())); });
  label(cloud, std::span<int32_t>(labels));
}

std::vector<std::pair<std::string, int64_t>> Segmenter::columns() const {
  std::vector<std::pair<std::string, int64_t>> made;
  for (const ProgramPort& port : state_->program.inputs())
    if (port.name != kPoints) made.emplace_back(port.name, width_of(port));
  return made;
}

const std::vector<std::pair<int64_t, std::string>>& Segmenter::classes() const {
  return state_->classes;
}

}  // namespace lattice
