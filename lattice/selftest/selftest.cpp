#include "lattice/selftest/selftest.h"

#include <mlx/backend/metal/metal.h>
#include <mlx/device.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <chrono>
#include <functional>
#include <map>
#include <stdexcept>
#include <variant>

#include "lattice/core/errors.h"
#include "lattice/graph/gpu_call.h"

namespace lattice {
namespace {

// FNV-1a (Fowler, Noll, Vo) of the bytes.
uint64_t bits_of(const graph::Arrays& results) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const mx::array& result : results) {
    mx::array plain = mx::contiguous(result, false, mx::Device::cpu);
    plain.eval();
    const auto* bytes = plain.data<uint8_t>();
    for (size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  }
  return hash;
}

std::string gpu_name() {
  if (!mx::metal::is_available()) return "";
  const auto& info = mx::device_info(mx::Device::gpu);
  const auto found = info.find("device_name");
  const auto* name = found == info.end() ? nullptr : std::get_if<std::string>(&found->second);
  return name ? *name : "";
}

using Run = std::function<graph::Arrays()>;

// Runs one case. `row` says what it is.
SelftestRow tried(SelftestRow row, const Answer& test, bool tf32, const Run& run) {
  row.label = test.label;
  row.tf32 = tf32;
  const auto start = std::chrono::steady_clock::now();
  try {
    graph::Arrays results = run();
    mx::eval(results);
    row.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    row.bits = bits_of(results);
    row.error = oracle_error(test, results, tf32 ? kTf32Part : kFloat32Part);
  } catch (const std::exception& e) {
    row.failure = e.what();
    row.unsupported = is_refusal(row.failure, gpu_name());
  }
  return row;
}

SelftestRow tried_on(const routes::Route& route, const OracleCase& test, mx::StreamOrDevice s) {
  const int64_t before = route.runs.n;
  SelftestRow row{.operation = route.operation,
                  .route = route.name,
                  .device = route.device == mx::Device::gpu ? "gpu" : "cpu"};
  row = tried(std::move(row), test, test.question->is_tf32(route),
              [&] { return test.question->run(route, s); });
  if (row.failure.empty() && route.runs.n == before)
    row.failure = "the kernel of this row did not run";
  return row;
}

// Whether kernels of the device run here: MLX has it, or something stands in for a GPU.
bool is_there(mx::Device::DeviceType device) {
  const bool hosted = bool(graph::stand_in().run);
  return device == mx::Device::gpu ? hosted || mx::is_available(mx::Device(device)) : true;
}

// The device on which arrays of such a row live.
mx::Device place_of(mx::Device::DeviceType device) {
  return graph::stand_in().run ? mx::Device(mx::Device::cpu) : mx::Device(device);
}

}  // namespace

// The back end says so by name, or fails to make a pipeline of a library that was compiled.
bool is_refusal(const std::string& error, const std::string& gpu) {
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  return has(error, "unlowered function call") ||
         (has(error, "Unable to load kernel") && has(gpu, "Paravirtual"));
}

std::vector<SelftestRow> selftest(const std::string& device, const std::string& prefix, int every,
                                  const std::function<void(double)>& tell) {
  if (!device.empty() && device != "cpu" && device != "gpu")
    fail("selftest", "device must be cpu or gpu, got '" + device + "'");
  if (every < 1) fail("selftest", "every must be positive, got " + std::to_string(every));
  std::vector<SelftestRow> rows;
  std::map<const routes::Route*, int> seen;
  const auto wanted = [&](mx::Device::DeviceType type, const std::string& name) {
    return is_there(type) && name.starts_with(prefix) &&
           (device.empty() || device == (type == mx::Device::gpu ? "gpu" : "cpu"));
  };
  const size_t cases = oracle_cases().size() + plain_cases().size();
  size_t begun = 0;
  const auto begin_case = [&] {
    if (tell) tell(static_cast<double>(begun++) / static_cast<double>(cases));
  };
  for (const OracleCase& test : oracle_cases()) {
    begin_case();
    for (const routes::Route* route : test.routes())
      if (wanted(route->device, route->name) && test.question->refusal(*route).fits() &&
          seen[route]++ % every == 0)
        rows.push_back(tried_on(*route, test, place_of(route->device)));
  }
  // With a stand-in every stream counts as one of a GPU.
  std::map<std::pair<std::string, std::string>, int> seen_plain;
  for (const PlainCase& test : plain_cases()) {
    begin_case();
    for (const auto type : {mx::Device::cpu, mx::Device::gpu}) {
      const std::string name = type == mx::Device::gpu ? "gpu" : "cpu";
      if (!wanted(type, name) || (type == mx::Device::cpu && graph::stand_in().run) ||
          seen_plain[{test.operation, name}]++ % every != 0)
        continue;
      SelftestRow row{.operation = test.operation, .route = name, .device = name};
      rows.push_back(tried(std::move(row), test, false,
                           [&] { return graph::Arrays{test.run(place_of(type))}; }));
    }
  }
  return rows;
}

}  // namespace lattice
