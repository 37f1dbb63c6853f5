// Entropy coders on 4 million symbols of a peaked distribution: best CPU time, million symbols per
// second (counter Msym_s) and bits per symbol. `python -m mlx_lattice bench entropy` puts zlib and
// zstd beside them.
//   entropy_bench --benchmark_filter=decode
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "bench/support/cpu_time.h"
#include "lattice/kernels/cpu/coding/rans.h"
#include "tests/support/random.h"

namespace {

using namespace lattice::cpu;

struct Data {
  std::vector<uint16_t> table;
  CdfSpan cdf;
  std::vector<int32_t> symbols;
};

// shared: one table for all rows, else the same table again for each of fewer rows.
Data make(int64_t alphabet, bool shared) {
  const int64_t rows = shared ? 4000000 : 100000;
  Data out;
  std::vector<float> prob;
  double sum = 0;
  for (int64_t s = 0; s < alphabet; ++s) {
    prob.push_back(
        static_cast<float>(std::exp(-std::abs(static_cast<double>(s - alphabet / 2)) / 12)));
    sum += static_cast<double>(prob.back());
  }
  for (float& p : prob) p = static_cast<float>(static_cast<double>(p) / sum);
  std::vector<uint16_t> one(static_cast<size_t>(alphabet + 1));
  normalized_cdf(prob.data(), 1, alphabet, one.data(), "bench");
  for (int64_t r = 0; r < (shared ? 1 : rows); ++r)
    out.table.insert(out.table.end(), one.begin(), one.end());
  out.cdf = {out.table.data(), shared ? 1 : rows, alphabet, shared};
  lattice::support::Random random(1);
  for (int64_t r = 0; r < rows; ++r)
    out.symbols.push_back(static_cast<int32_t>(
        out.cdf.find(one.data(), static_cast<uint32_t>(random.bits() & 65535))));
  return out;
}

void run(benchmark::State& state, Coder coder, int64_t alphabet, bool shared, bool decoding) {
  const Data data = make(alphabet, shared);
  const auto encode = coder == Coder::range ? range_encode : rans_encode;
  const auto decode = coder == Coder::range ? range_decode : rans_decode;
  const std::vector<uint8_t> stream = encode(data.cdf, data.symbols);
  std::vector<int32_t> out(data.symbols.size());
  double best = std::numeric_limits<double>::infinity();
  for (auto _ : state) {
    const double begin = lattice::bench::cpu_seconds();
    check_cdf(data.cdf, "bench");
    if (decoding)
      decode(data.cdf, open_stream(stream, coder, data.cdf, "bench"), out, "bench");
    else
      benchmark::DoNotOptimize(encode(data.cdf, data.symbols).data());
    best = std::min(best, lattice::bench::cpu_seconds() - begin);
  }
  if (decoding && out != data.symbols) state.SkipWithError("wrong symbols");
  const double n = static_cast<double>(data.symbols.size());
  state.counters["Msym_s"] = n / best * 1e-6;
  state.counters["bits"] = 8 * static_cast<double>(stream.size()) / n;
}

}  // namespace

int main(int argc, char** argv) {
  for (const Coder coder : {Coder::rans, Coder::range})
    for (const int64_t alphabet : {16, 256, 4096})
      for (const bool shared : {true, false})
        for (const bool decoding : {false, true}) {
          if (!shared && alphabet > 256) continue;
          const std::string title = std::string(coder == Coder::rans ? "rans" : "range") +
                                    "/alphabet:" + std::to_string(alphabet) +
                                    (shared ? "/one_table" : "/table_a_row") +
                                    (decoding ? "/decode" : "/encode");
          benchmark::RegisterBenchmark(title.c_str(), [=](benchmark::State& state) {
            run(state, coder, alphabet, shared, decoding);
          })->Unit(benchmark::kMillisecond);
        }
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
