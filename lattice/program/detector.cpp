#include "lattice/program/detector.h"

#include "lattice/core/arrays.h"
#include "lattice/program/cloud_program.h"

namespace lattice {

struct Detector::State {
  program::CloudProgram net;
};

Detector Detector::load(const std::string& path, const DetectorOptions& options) {
  constexpr const char* kName = "Detector::load";
  return program::guarded(kName, [&] {
    return Detector(std::make_shared<State>(State{program::CloudProgram::load(
        kName, path, options.threads, {options.max_points, options.max_rows, options.max_bytes},
        "boxes", "export a detector: detector.export(path, points)")}));
  });
}

Detections Detector::detect(const Cloud& cloud) const {
  constexpr const char* kName = "Detector::detect";
  return program::guarded(kName, [&] {
    const program::CloudProgram& net = state_->net;
    net.check_size(kName, cloud);
    Session session = net.program.session(net.limits);
    const ProgramValues outputs = session.run(net.inputs(kName, cloud));
    const mx::array boxes = program::output_of(kName, outputs, "boxes", mx::float32);
    const mx::array scores = program::output_of(kName, outputs, "scores", mx::float32);
    const mx::array labels = program::output_of(kName, outputs, "labels", mx::int32);
    const mx::array dropped = program::output_of(kName, outputs, "dropped", mx::int32);
    std::optional<mx::array> velocities;
    if (outputs.contains("velocities"))
      velocities = program::output_of(kName, outputs, "velocities", mx::float32);
    const int n = labels.ndim() == 1 ? labels.shape(0) : -1;
    if (boxes.shape() != mx::Shape{n, 7} || scores.shape() != mx::Shape{n} ||
        dropped.shape() != mx::Shape{3} || (velocities && velocities->shape() != mx::Shape{n, 2}))
      program::refuse(kName, "boxes", "the outputs of the program are not those of a detector",
                      ErrorCode::file);
    Detections made{
        {}, dropped.data<int32_t>()[0], dropped.data<int32_t>()[1], dropped.data<int32_t>()[2]};
    for (int i = 0; i < n; ++i) {
      const float* b = boxes.data<float>() + i * 7;
      Box box{{b[0], b[1], b[2]},      {b[3], b[4], b[5]},        b[6],
              scores.data<float>()[i], labels.data<int32_t>()[i], std::nullopt};
      if (velocities)
        box.velocity = {velocities->data<float>()[i * 2], velocities->data<float>()[i * 2 + 1]};
      made.boxes.push_back(box);
    }
    return made;
  });
}

std::vector<std::pair<std::string, int64_t>> Detector::columns() const {
  return state_->net.columns();
}

const std::vector<std::pair<int64_t, std::string>>& Detector::classes() const {
  return state_->net.classes;
}

std::string Detector::name(const Box& box) const {
  for (const auto& [label, name] : classes())
    if (label == box.label) return name;
  return "";
}

}  // namespace lattice
