// Range coder and rANS: every symbol comes back, and code lengths are those of the tables. Golden
// streams freeze the format; anything else is refused. tests/kernels/fuzz_test.cpp has the hostile
// bytes.
#include "lattice/kernels/cpu/coding/entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "lattice/kernels/cpu/coding/rans.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

struct Source {
  std::vector<uint16_t> tables;
  CdfSpan cdf;
  std::vector<int32_t> symbols;
  double bits = 0;  // ideal length
};

// `rows` symbols drawn from random tables; sharp: one symbol has nearly all of the probability.
Source make(int64_t rows, int64_t alphabet, bool shared, uint64_t seed, bool sharp = false) {
  support::Random random(seed);
  const int64_t tables = shared ? 1 : rows;
  std::vector<float> prob(static_cast<size_t>(tables * alphabet));
  for (int64_t t = 0; t < tables; ++t) {
    double sum = 0;
    for (int64_t s = 0; s < alphabet; ++s) {
      const double u = random.unit();
      sum += prob[static_cast<size_t>(t * alphabet + s)] =
          static_cast<float>(sharp ? (s == 1 ? 1.0 : 0.0) : u * u * u * u);
    }
    for (int64_t s = 0; s < alphabet; ++s)
      prob[static_cast<size_t>(t * alphabet + s)] /= static_cast<float>(sum);
  }
  Source out;
  out.tables.resize(static_cast<size_t>(tables * (alphabet + 1)));
  normalized_cdf(prob.data(), tables, alphabet, out.tables.data(), "test");
  out.cdf = {out.tables.data(), tables, alphabet, shared};
  check_cdf(out.cdf, "test");
  for (int64_t r = 0; r < rows; ++r) {
    const uint16_t* table = out.cdf.table(r);
    const int64_t s = out.cdf.find(table, static_cast<uint32_t>(random.bits() & 65535));
    out.symbols.push_back(static_cast<int32_t>(s));
    out.bits += 16 - std::log2(out.cdf.size(table, s));
  }
  return out;
}

std::vector<int32_t> decode(Coder coder, const CdfSpan& cdf, Bytes data) {
  const Stream stream = open_stream(data, coder, cdf, "test");
  std::vector<int32_t> out(static_cast<size_t>(stream.rows));
  (coder == Coder::range ? range_decode : rans_decode)(cdf, stream, out, "test");
  return out;
}
std::vector<uint8_t> encode(Coder coder, const Source& s) {
  return (coder == Coder::range ? range_encode : rans_encode)(s.cdf, s.symbols);
}
std::string hex(Bytes data) {
  std::string out;
  for (uint8_t b : data) out += {"0123456789abcdef"[b >> 4], "0123456789abcdef"[b & 15]};
  return out;
}

TEST(Checksum, KnownValue) {
  const std::string digits = "123456789";
  const Bytes data(reinterpret_cast<const uint8_t*>(digits.data()), 9);
  EXPECT_EQ(crc32c(data), 0xe3069283u);
  EXPECT_EQ(crc32c(data.subspan(4), crc32c(data.first(4))), 0xe3069283u);
  EXPECT_EQ(crc32c({}), 0u);
}

TEST(Cdf, IsTheFormula) {
  support::Random random(7);
  for (const int64_t alphabet : {2, 3, 17, 256, 1000, 65536}) {
    std::vector<float> p(static_cast<size_t>(alphabet));
    for (float& v : p)
      v = static_cast<float>(random.uniform(-0.2, 3.0) / static_cast<double>(alphabet));
    p[0] = alphabet == 3 ? 5.0f : p[0];  // above 1
    std::vector<uint16_t> c(static_cast<size_t>(alphabet + 1));
    normalized_cdf(p.data(), 1, alphabet, c.data(), "test");
    double sum = 0;
    for (int64_t j = 0; j < alphabet; ++j) {
      const int64_t expected = std::clamp<int64_t>(
          std::llrint(sum * static_cast<double>(65536 - alphabet)) + j, j, 65536 - alphabet + j);
      ASSERT_EQ(c[static_cast<size_t>(j)], expected) << alphabet << " " << j;
      sum += std::clamp<double>(p[static_cast<size_t>(j)], 0, 1);
    }
    EXPECT_EQ(c.back(), 0);
    EXPECT_NO_THROW(check_cdf({c.data(), 1, alphabet, true}, "test"));
  }
  const float bad[] = {0.5f, 0.5f, 0.5f, NAN};
  uint16_t out[6];
  EXPECT_THROW(normalized_cdf(bad, 2, 2, out, "test"), std::invalid_argument);
  const uint16_t flat[] = {0, 7, 7, 0}, late[] = {1, 7, 9, 0}, open[] = {0, 7, 9, 9};
  for (const uint16_t* t : {flat, late, open})
    EXPECT_THROW(check_cdf({t, 1, 3, true}, "test"), std::invalid_argument);
}

class Coders : public ::testing::TestWithParam<Coder> {};

TEST_P(Coders, GiveEverySymbolBack) {
  for (const bool shared : {false, true})
    for (const int64_t alphabet : {2, 3, 16, 255, 256, 257, 5000})
      for (const int64_t rows : {0, 1, 2, 31, 33, 1000, 8191, 8192, 8205, 20000}) {
        if (!shared && rows * alphabet > 3000000) continue;
        for (const bool sharp : {false, true}) {
          const Source s =
              make(rows, alphabet, shared, static_cast<uint64_t>(rows + alphabet), sharp);
          const std::vector<uint8_t> data = encode(GetParam(), s);
          ASSERT_EQ(decode(GetParam(), s.cdf, data), s.symbols)
              << alphabet << " " << rows << " " << shared;
          const double header = 24 * 8 + (rows >= 8192 ? 32 * 32 : 64);
          ASSERT_LE(8.0 * static_cast<double>(data.size()),
                    s.bits * 1.002 + header + 0.005 * static_cast<double>(rows));
        }
      }
}

TEST_P(Coders, AgreeOnEveryInstructionSet) {
  const Source s = make(50000, 256, true, 5);
  const std::vector<uint8_t> data = encode(GetParam(), s);
  support::on_each_target([&] { EXPECT_EQ(decode(GetParam(), s.cdf, data), s.symbols); });
}

TEST_P(Coders, RefuseWhatWasChanged) {
  const Source s = make(300, 20, true, 3), other = make(300, 20, true, 4),
               narrow = make(300, 19, true, 3);
  const std::vector<uint8_t> data = encode(GetParam(), s);
  const auto refused = [&](const CdfSpan& cdf, std::vector<uint8_t> bytes) {
    EXPECT_THROW(decode(GetParam(), cdf, bytes), std::invalid_argument) << bytes.size();
  };
  for (size_t n = 0; n < data.size(); ++n)
    refused(s.cdf, {data.begin(), data.begin() + static_cast<int64_t>(n)});
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    std::vector<uint8_t> flipped = data;
    flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    refused(s.cdf, flipped);
  }
  std::vector<uint8_t> longer = data;
  longer.push_back(0);
  refused(s.cdf, longer);
  refused(other.cdf, data);
  refused(narrow.cdf, data);
  const Source rows = make(299, 20, false, 3);
  refused(rows.cdf, data);
}

TEST_P(Coders, BoundMemoryByTheBytes) {
  const Source s = make(10, 4, true, 3);
  std::vector<uint8_t> coded(8);
  const std::vector<uint8_t> data =
      write_stream(GetParam(), GetParam() == Coder::rans ? 1 : 0, 1 << 30, 4, coded);
  EXPECT_THROW(open_stream(data, GetParam(), s.cdf, "test"), std::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(Both, Coders, ::testing::Values(Coder::range, Coder::rans));

// These bytes are the format: they never change.
TEST(Golden, Streams) {
  const float prob[] = {0.5f, 0.25f, 0.125f, 0.0625f, 0.0625f};
  uint16_t table[6];
  normalized_cdf(prob, 1, 5, table, "test");
  const CdfSpan cdf{table, 1, 5, true};
  const std::vector<int32_t> symbols{0, 1, 2, 3, 4, 4, 3, 2, 1, 0, 0, 0, 0, 1, 0, 2};
  EXPECT_EQ(hex(range_encode(cdf, symbols)),
            "4c454e5401010000100000000000000005000000155aa3d65bbe2ec2ef39e77f");
  EXPECT_EQ(hex(rans_encode(cdf, symbols)),
            "4c454e5401020100100000000000000005000000fd0d9438271f1f0090e2d3db");
  const Source large = make(20000, 256, true, 11);
  EXPECT_EQ(crc32c(rans_encode(large.cdf, large.symbols)), 2649782060u);
  EXPECT_EQ(crc32c(range_encode(large.cdf, large.symbols)), 1080594231u);
}

}  // namespace
}  // namespace lattice::cpu
