// Hostile bytes for every decoder: valid streams are cut, extended, flipped, spliced and
// overwritten, half of them with their checksum made right again. A decoder may refuse with
// std::invalid_argument or give a result of the size it announced; a stream whose checksum was not
// repaired must be refused. A few seconds here; `make fuzz` runs a million under AddressSanitizer.
// LATTICE_FUZZ_SEED=2 and so on gives others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

#include "lattice/kernels/cpu/coding/attributes.h"
#include "lattice/kernels/cpu/coding/lidar.h"
#include "lattice/kernels/cpu/coding/octree.h"
#include "lattice/kernels/cpu/coding/rans.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/curves.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Random;
using Data = std::vector<uint8_t>;

int64_t inputs() {
  const char* n = std::getenv("LATTICE_FUZZ_INPUTS");
  return n ? std::atoll(n) : 4000;
}

uint64_t first_seed() {
  const char* n = std::getenv("LATTICE_FUZZ_SEED");
  return n ? 1000 * std::strtoull(n, nullptr, 10) : 0;
}

Data mutate(const Data& seed, const Data& other, Random& random) {
  Data data = seed;
  const int64_t steps = random.between(1, 4);
  for (int64_t i = 0; i < steps; ++i) {
    const auto at = [&] {
      return static_cast<size_t>(random.below(static_cast<int64_t>(data.size())));
    };
    switch (data.empty() ? 1 : random.below(7)) {
      case 0:
        data.resize(at());
        break;
      case 1:
        data.insert(data.end(), static_cast<size_t>(random.between(1, 40)),
                    static_cast<uint8_t>(random.bits()));
        break;
      case 2:
        data[at()] ^= static_cast<uint8_t>(1u << random.below(8));
        break;
      case 3:
        data[at()] = static_cast<uint8_t>(random.bits());
        break;
      case 4:  // a number of the header becomes huge
        for (size_t k = 0, p = std::min(at(), size_t{30}); k < 4 && p + k < data.size(); ++k)
          data[p + k] = random.chance(0.5) ? 255 : 0;
        break;
      case 5: {
        const size_t from = at(), n = std::min(other.size(), data.size()) -
                                      std::min(from, std::min(other.size(), data.size()));
        std::copy_n(other.begin() + static_cast<int64_t>(std::min(from, other.size())), n,
                    data.begin() + static_cast<int64_t>(from));
        break;
      }
      default:
        std::fill(data.begin() + static_cast<int64_t>(at()), data.end(),
                  random.chance(0.5) ? 0 : 255);
    }
  }
  return data;
}

// Mutates the seeds; decode(data, random) looks at the result.
template <typename Decode>
void run(const std::vector<Data>& seeds, uint64_t seed, int64_t count, const Decode& decode) {
  Random random(first_seed() + seed);
  for (int64_t i = 0; i < count; ++i) {
    const auto pick = [&]() -> const Data& {
      return seeds[static_cast<size_t>(random.below(static_cast<int64_t>(seeds.size())))];
    };
    const Data data = mutate(pick(), pick(), random);
    try {
      decode(data, random);
    } catch (const std::invalid_argument&) {
    }
  }
}

void fuzz_entropy(Coder coder, int64_t alphabet, bool shared, int64_t count) {
  Random random(alphabet + 1);
  const int64_t rows = 300, tables = shared ? 1 : rows;
  std::vector<float> prob(static_cast<size_t>(tables * alphabet));
  for (float& p : prob) p = static_cast<float>(random.unit() * 2 / static_cast<double>(alphabet));
  std::vector<uint16_t> table(static_cast<size_t>(tables * (alphabet + 1)));
  normalized_cdf(prob.data(), tables, alphabet, table.data(), "fuzz");
  const CdfSpan cdf{table.data(), tables, alphabet, shared};
  std::vector<Data> seeds;
  for (const int64_t n :
       shared ? std::vector<int64_t>{0, 1, 300, 8300} : std::vector<int64_t>{rows}) {
    std::vector<int32_t> symbols(static_cast<size_t>(n));
    for (int32_t& s : symbols) s = static_cast<int32_t>(random.below(alphabet));
    seeds.push_back((coder == Coder::range ? range_encode : rans_encode)(cdf, symbols));
  }
  run(seeds, static_cast<uint64_t>(alphabet), count, [&](Data data, Random& r) {
    const bool repaired = data.size() >= 24 && r.chance(0.5);
    if (repaired) {
      const uint32_t sum = crc32c(Bytes(data).subspan(24), crc32c(Bytes(data).first(20)));
      for (size_t k = 0; k < 4; ++k) data[20 + k] = static_cast<uint8_t>(sum >> (8 * k));
    }
    const Stream stream = open_stream(data, coder, cdf, "fuzz");
    std::vector<int32_t> out(static_cast<size_t>(stream.rows));
    (coder == Coder::range ? range_decode : rans_decode)(cdf, stream, out, "fuzz");
    for (int32_t s : out) ASSERT_TRUE(s >= 0 && s < alphabet);
    if (!repaired) {
      ASSERT_NE(std::find(seeds.begin(), seeds.end(), data),
                seeds.end());  // a splice may give another seed
    }
  });
}

TEST(Fuzz, Entropy) {
  for (const Coder coder : {Coder::range, Coder::rans})
    for (const bool shared : {false, true})
      for (const int64_t alphabet : {2, 256, 300})
        fuzz_entropy(coder, alphabet, shared, inputs() / 20);
}

TEST(Fuzz, Octree) {
  std::vector<Data> seeds;
  for (const support::Coords& set : {support::random_set(40, 6, 2), support::dense_block(4, 4, 4),
                                     support::line(30), support::random_set(5, 1 << 30)}) {
    const CoordSpan span{set.data(), static_cast<int64_t>(set.size()) / 4, false};
    std::vector<int32_t> sorted(set.size());
    take_rows(span, morton_order(span).span(), sorted.data());
    seeds.push_back(encode_octree({sorted.data(), span.rows, false}, "fuzz"));
  }
  run(seeds, 5, inputs() / 5, [&](const Data& data, Random&) {
    const std::vector<int32_t> rows = decode_octree(data, "fuzz");
    const CoordSpan span{rows.data(), static_cast<int64_t>(rows.size()) / 4, false};
    const Buffer<int32_t> order = morton_order(span);
    for (int64_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
    ASSERT_LT(index_coords(span).duplicate, 0);
  });
}

// Whole files of the network's coder are larger, so that its levels are reached.
TEST(Fuzz, Lidar) {
  for (const bool fast : {false, true}) {
    const LidarOptions options{&LidarNet::shipped(), fast, {1, 2, 3}};
    std::vector<Data> seeds;
    for (const support::Coords& set :
         {support::random_set(150, 9, 2), support::dense_block(9, 9, 3), support::line(80),
          support::random_set(70, 1 << 30)}) {
      const CoordSpan span{set.data(), static_cast<int64_t>(set.size()) / 4, false};
      std::vector<int32_t> sorted(set.size());
      take_rows(span, morton_order(span).span(), sorted.data());
      seeds.push_back(encode_lidar({sorted.data(), span.rows, false}, options, "fuzz"));
    }
    run(seeds, 7, inputs() / 10, [&](const Data& data, Random&) {
      const std::vector<int32_t> rows = decode_lidar(data, options, "fuzz");
      const CoordSpan span{rows.data(), static_cast<int64_t>(rows.size()) / 4, false};
      const Buffer<int32_t> order = morton_order(span);
      for (int64_t i = 0; i < order.size(); ++i) ASSERT_EQ(order[i], i);
      ASSERT_LT(index_coords(span).duplicate, 0);
    });
  }
}

TEST(Fuzz, Values) {
  const support::Coords coords = support::random_set(30, 9, 2);
  for (const ValueKind kind : {ValueKind{1, false}, ValueKind{4, true}}) {
    std::vector<uint8_t> values(static_cast<size_t>(90 * kind.width));
    Random random(3);
    for (uint8_t& v : values) v = static_cast<uint8_t>(random.below(40));
    run({encode_values(coords, values, 3, kind)}, 6, inputs() / 10, [&](const Data& data, Random&) {
      ASSERT_EQ(decode_values(coords, data, 3, kind, "fuzz").size(), values.size());
    });
  }
}

}  // namespace
}  // namespace lattice::cpu
