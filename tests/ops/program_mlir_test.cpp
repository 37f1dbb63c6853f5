// Graph texts of the older package: what is read, what is refused, and that no change of a text
// does anything else.
#include "lattice/program/mlir_text.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "lattice/core/errors.h"
#include "lattice/program/mlir_lower.h"

namespace lattice::program::mlir {
namespace {

std::vector<std::string> texts() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("programs/texts")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    found.push_back(text.str());
  }
  return found;
}

// LATTICE_FUZZ_INPUTS is the number of inputs of `make fuzz`; a fiftieth of them are texts.
int count_of(int otherwise) {
  const char* wanted = std::getenv("LATTICE_FUZZ_INPUTS");
  return wanted ? std::max(std::atoi(wanted) / 50, 1) : otherwise;
}

// The message of a refusal; empty when the text is read.
std::string refused(const std::string& text) {
  try {
    verify(parse(text));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

TEST(Mlir, BothSpellingsAreRead) {
  ASSERT_EQ(texts().size(), 5u);
  for (const std::string& text : texts()) EXPECT_EQ(refused(text), "");
}

TEST(Mlir, MessagesNameTheLine) {
  for (std::string text : texts()) {
    const size_t at = text.find("canonical_f32");
    if (at == std::string::npos) continue;
    const auto line = std::count(text.begin(), text.begin() + static_cast<ptrdiff_t>(at), '\n') + 1;
    text.replace(at, 13, "other");
    EXPECT_NE(refused(text).find("line " + std::to_string(line) + ": lattice."), std::string::npos)
        << refused(text);
  }
}

// Flipped characters, cut texts, tokens that are deleted, repeated or come from another place.
std::string mutated(std::string text, const std::string& other, std::mt19937& random) {
  const auto below = [&](size_t n) { return n ? random() % n : 0; };
  for (size_t times = 1 + below(4); times > 0 && !text.empty(); --times) {
    const size_t at = below(text.size()), length = 1 + below(24);
    // Every second change is another number, which leaves the text in order.
    switch (below(12)) {
      case 6:
      case 7:
      case 8:
      case 9:
      case 10:
      case 11: {
        const size_t digit = text.find_first_of("0123456789", at);
        if (digit == std::string::npos) break;
        text[digit] = static_cast<char>('0' + below(10));
        if (below(4) == 0) text.insert(digit, std::to_string(below(1000)));
        break;
      }
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, length);
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), length));
        break;
      case 3:
        text.insert(at, other.substr(below(other.size()), length));
        break;
      case 4:
        text.resize(at);
        break;
      default: {
        constexpr const char* kWords[] = {"%0",
                                          "9999999999999999999",
                                          "-1",
                                          "1.0",
                                          "<",
                                          "x",
                                          "\"",
                                          "tensor<?x4xi32>",
                                          "array<i64: 0>",
                                          "lattice.weight @w"};
        text.insert(at, kWords[below(std::size(kWords))]);
      }
    }
  }
  return text;
}

// The same for whole programs: what the text asks of weights and operations is checked, too.
TEST(Mlir, MutatedProgramsAreLoadedOrRefused) {
  const int count = count_of(200);
  std::vector<std::pair<std::string, Arrays>> all;
  for (const auto& entry : std::filesystem::directory_iterator("programs/cases")) {
    std::ostringstream text;
    text << std::ifstream(entry.path() / "graph.mlir").rdbuf();
    const std::string bytes = read_bytes(entry.path() / "weights.safetensors");
    all.emplace_back(text.str(), read_tensors(std::as_bytes(std::span(bytes))).arrays);
    EXPECT_NO_THROW(load(all.back().first, all.back().second));
  }
  ASSERT_EQ(all.size(), 4u);
  std::mt19937 random(8);
  int refused = 0;
  for (int i = 0; i < count; ++i) {
    const auto& [text, weights] = all[random() % all.size()];
    try {
      load(mutated(text, all[random() % all.size()].first, random), weights);
    } catch (const Error& error) {
      ++refused;
      EXPECT_NE(std::string(error.what()).find("line "), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(refused, count / 2);
}

TEST(Mlir, MutatedTextsAreReadOrRefused) {
  const int count = count_of(1000);
  const std::vector<std::string> all = texts();
  std::mt19937 random(7);
  int read = 0;
  for (int i = 0; i < count; ++i) {
    const std::string message =
        refused(mutated(all[random() % all.size()], all[random() % all.size()], random));
    read += message.empty();
    EXPECT_TRUE(message.empty() || message.find("line ") != std::string::npos) << message;
  }
  EXPECT_LT(read, count);
}

}  // namespace
}  // namespace lattice::program::mlir
