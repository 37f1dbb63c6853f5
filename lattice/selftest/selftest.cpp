#include "lattice/selftest/selftest.h"

#include <mlx/device.h>
#include <mlx/ops.h>

#include <chrono>
#include <map>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/graph/gpu_call.h"

namespace lattice {
namespace {

// FNV-1a (Fowler, Noll, Vo) of the bytes.
uint64_t bits_of(const mx::array& result) {
  mx::array plain = mx::contiguous(result, false, mx::Device::cpu);
  plain.eval();
  uint64_t hash = 0xcbf29ce484222325ull;
  const auto* bytes = plain.data<uint8_t>();
  for (size_t i = 0; i < plain.nbytes(); ++i) hash = (hash ^ bytes[i]) * 0x100000001b3ull;
  return hash;
}

}  // namespace

std::vector<SelftestRow> selftest(const std::string& device, const std::string& prefix, int every) {
  if (!device.empty() && device != "cpu" && device != "gpu")
    fail("selftest", "device must be cpu or gpu, got '" + device + "'");
  if (every < 1) fail("selftest", "every must be positive, got " + std::to_string(every));
  std::vector<SelftestRow> rows;
  std::map<const Route*, int> seen;
  for (OracleCase& test : oracle_cases())
    for (const Route& route : routes()) {
      const bool hosted = route.device == mx::Device::gpu && graph::has_gpu_host();
      if (test.call.operation != route.operation ||
          !(hosted || mx::is_available(mx::Device(route.device))))
        continue;
      if (!device.empty() && device != (route.device == mx::Device::gpu ? "gpu" : "cpu")) continue;
      if (!std::string_view(route.name).starts_with(prefix)) continue;
      test.call.stream = hosted ? mx::Device::cpu : mx::Device(route.device);
      if (!route.refusal(test.call).fits() || seen[&route]++ % every != 0) continue;
      SelftestRow row;
      row.operation = name(test.call.operation), row.route = route.name, row.label = test.label;
      row.device = route.device == mx::Device::gpu ? "gpu" : "cpu";
      const auto start = std::chrono::steady_clock::now();
      const int64_t before = route.runs.n;
      try {
        mx::array result = route.launch(test.call, route)[0];
        result.eval();
        if (route.runs.n == before) row.failure = "the kernel of this row did not run";
        row.seconds =
            std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
        row.bits = bits_of(result);
        row.tf32 = part_of(route, test.call) == kTf32Part;
        row.error = oracle_error(test, result, part_of(route, test.call));
      } catch (const std::exception& e) {
        row.failure = e.what();
      }
      rows.push_back(std::move(row));
    }
  return rows;
}

}  // namespace lattice
