// LATTICE_SIMD and limit_simd: every name that is offered is what runs, and other names are errors.
#include "lattice/kernels/cpu/base/simd.h"

#include <gtest/gtest.h>

#include <cctype>
#include <sstream>
#include <stdexcept>
#include <string>

namespace lattice::cpu {
namespace {

TEST(Simd, EveryNameIsWhatRuns) {
  const std::string best = simd_name();
  std::istringstream names(simd_names());
  int count = 0;
  for (std::string name; std::getline(names >> std::ws, name, ','); ++count) {
    limit_simd(name);
    EXPECT_EQ(name, simd_name());
  }
  EXPECT_GE(count, 1);
  limit_simd("");
  EXPECT_EQ(best, simd_name());
}

TEST(Simd, NamesInLowerCaseAreTheSame) {
  std::string name = simd_name();
  for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  limit_simd(name);
  EXPECT_STRCASEEQ(name.c_str(), simd_name());
  limit_simd("");
}

TEST(Simd, OtherNamesAreErrors) {
  try {
    limit_simd("AVX9");
    FAIL();
  } catch (const std::invalid_argument& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("[LATTICE_SIMD] found \"AVX9\""), std::string::npos) << text;
    EXPECT_NE(text.find(simd_names()), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace lattice::cpu
