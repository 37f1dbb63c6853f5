#include "lattice/routes/route.h"

#include <sstream>

#include "lattice/graph/gpu_call.h"

namespace lattice::routes {

const char* name(Step step) {
  static constexpr const char* kNames[] = {"device", "relation", "storage", "shape and dtype",
                                           "capability"};
  return kNames[static_cast<int>(step)];
}

std::string number(double value) {
  const auto whole = static_cast<int64_t>(value);
  if (static_cast<double>(whole) != value) {
    std::ostringstream out;
    out << value;
    return out.str();
  }
  std::string digits = std::to_string(whole);
  for (int64_t at = static_cast<int64_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

bool has_backend(Code code) {
  if (code != Code::metal && code != Code::cuda) return true;
  return graph::gpu_backend() ==
         (code == Code::metal ? graph::GpuBackend::metal : graph::GpuBackend::cuda);
}

Rejection missing_backend(Code code) {
  if (has_backend(code)) return {};
  return {Step::capability, code == Code::metal ? "MLX has no Metal here" : "MLX has no CUDA here"};
}

void make_cuda_twin(Route& row) {
  const auto rename = [](std::string& text, const std::string& from, const std::string& to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
      text.replace(at, from.size(), to);
  };
  row.code = Code::cuda;
  rename(row.name, "metal.", "cuda.");
  rename(row.predicate, "metal.", "cuda.");
  rename(row.predicate, "Metal", "CUDA");
  rename(row.predicate, "threadgroup memory", "shared memory");
  rename(row.predicate, "threadgroup", "block of threads");
}

}  // namespace lattice::routes
