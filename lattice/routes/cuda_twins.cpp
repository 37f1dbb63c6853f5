#include "lattice/routes/cuda_twins.h"

#include <string>

namespace lattice {

std::vector<Route> with_cuda(std::initializer_list<Route> rows) {
  std::vector<Route> all, twins;
  all.reserve(2 * rows.size());
  const auto end_run = [&] {
    for (const Route& twin : twins) all.push_back(twin);
    twins.clear();
  };
  for (const Route& row : rows) {
    if (row.code != Code::metal || (!twins.empty() && twins[0].operation != row.operation))
      end_run();
    all.push_back(row);
    if (row.code != Code::metal || row.name.find("tensor") != std::string::npos) continue;
    Route& twin = twins.emplace_back(row);
    twin.code = Code::cuda;
    const auto rename = [](std::string& text, const std::string& from, const std::string& to) {
      for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
        text.replace(at, from.size(), to);
    };
    rename(twin.name, "metal.", "cuda.");
    rename(twin.predicate, "metal.", "cuda.");
    rename(twin.predicate, "Metal", "CUDA");
    rename(twin.predicate, "threadgroup memory", "shared memory");
    rename(twin.predicate, "threadgroup", "block of threads");
  }
  end_run();
  return all;
}

}  // namespace lattice
