#include "lattice/program/segmenter.h"

#include <cstring>

#include "lattice/program/cloud_program.h"

namespace lattice {
namespace {

using program::guarded;
using program::refuse;
constexpr const char* kLabels = "labels";

}  // namespace

struct Segmenter::State {
  program::CloudProgram net;
};

Segmenter Segmenter::load(const std::string& path, const SegmenterOptions& options) {
  constexpr const char* kName = "Segmenter::load";
  return guarded(kName, [&] {
    return Segmenter(std::make_shared<State>(State{program::CloudProgram::load(
        kName, path, options.threads, {options.max_points, options.max_rows, options.max_bytes},
        kLabels,
        "export the network with its pipeline: model.export(path, example=cloud, "
        "pipeline=pipeline)")}));
  });
}

void Segmenter::label(const Cloud& cloud, std::span<int32_t> labels) const {
  constexpr const char* kName = "Segmenter::label";
  if (static_cast<int64_t>(labels.size()) != cloud.size())
    refuse(kName, "labels",
           "labels has room for " + std::to_string(labels.size()) + " points, the cloud has " +
               std::to_string(cloud.size()));
  guarded(kName, [&] {
    const program::CloudProgram& net = state_->net;
    net.check_size(kName, cloud);
    Session session = net.program.session(net.limits);
    const mx::array made =
        program::output_of(kName, session.run(net.inputs(kName, cloud)), kLabels, mx::int32);
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
  return state_->net.columns();
}

const std::vector<std::pair<int64_t, std::string>>& Segmenter::classes() const {
  return state_->net.classes;
}

}  // namespace lattice
