// Hostile programs: every changed file loads or is refused with an Error that names the place.
//
// LATTICE_FUZZ_INPUTS is the number of inputs of `make fuzz`; a tenth of it are files, a fiftieth
// texts. A file that loads also runs on a few rows, with limits.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "lattice/kernels/cpu/base/checksum.h"
#include "lattice/program/executor.h"
#include "lattice/program/loaded.h"
#include "lattice/program/program.h"

namespace lattice {
namespace {

using namespace program;

constexpr double kMostSeconds = 20;  // of one input, also with sanitizers on a busy machine

int64_t count_of(int64_t share, int64_t otherwise) {
  const char* given = std::getenv("LATTICE_FUZZ_INPUTS");
  return given ? std::max<int64_t>(std::atoll(given) / share, 1) : otherwise;
}

struct Random {
  std::mt19937 engine;
  size_t below(size_t n) { return n ? engine() % n : 0; }
};

// The small ones: more weights would only take more time.
std::vector<std::string> stored_files() {
  std::vector<std::string> found;
  for (const auto& entry : std::filesystem::directory_iterator("programs"))
    if (entry.path().string().ends_with(".lattice.safetensors") && entry.file_size() < 100'000)
      found.push_back(read_bytes(entry.path().string()));
  std::sort(found.begin(), found.end());
  return found;
}

// One of the usual ways in which bytes go wrong.
void damage(std::string& bytes, Random& random) {
  for (size_t n = 1 + random.below(4); n > 0 && !bytes.empty(); --n) {
    // Mostly in the header, where the sizes are.
    const size_t at =
        random.below(random.below(4) ? std::min<size_t>(bytes.size(), 9000) : bytes.size());
    switch (random.below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random.engine());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, 1 + random.below(16));
        break;
      case 4:
        bytes.insert(at, bytes.substr(random.below(bytes.size()), 1 + random.below(16)));
        break;
      default:
        bytes[at] = "0123456789[]{},:\"-"[random.below(18)];
    }
  }
}

// Words and numbers of a text put into other places, and whole lines.
std::string changed(std::string graph, Random& random) {
  static const std::vector<std::string> kWords = {
      "0",       "-1",      "7",     "2147483647", "1e30", "nan",   "none", "_",
      "[]",      "[a]",     "\"w\"", "x",          "999",  "-0.5",  "@2",   "v3",
      "[1,1,1]", "[2,2,2]", "inf",   "1",          "2",    "input", "v1",   "[v1, v2]"};
  for (size_t n = 1 + random.below(3); n > 0; --n) {
    const size_t from = graph.find_first_of("0123456789abcdexyz_\"[", random.below(graph.size()));
    if (from == std::string::npos) continue;
    const size_t end = graph.find_first_of(" ,()[]=\n", from);
    const size_t length = end == std::string::npos ? 1 : std::max<size_t>(1, end - from);
    const size_t line = graph.find('\n', from), next = graph.find('\n', random.below(graph.size()));
    switch (random.below(8)) {
      case 0:
        graph.erase(from, length);
        break;
      case 1:  // a line twice, or gone, or somewhere else
        if (line != std::string::npos && next != std::string::npos && next > line) {
          const std::string whole = graph.substr(line, next - line);
          if (random.below(2)) graph.erase(line, next - line);
          if (random.below(2)) graph.insert(graph.find('\n', random.below(line)), whole);
        }
        break;
      case 2: {  // a word of another place
        const size_t other = random.below(graph.size());
        graph.replace(from, length, graph.substr(other, 1 + random.below(12)));
        break;
      }
      default:
        graph.replace(from, length, kWords[random.below(kWords.size())]);
    }
  }
  return graph;
}

// Another shape, dtype or size of a tensor.
mx::array changed(const mx::array& value, Random& random) {
  const int size = static_cast<int>(value.size());
  switch (random.below(5)) {
    case 0:
      return mx::reshape(value, {size});
    case 1:
      return mx::reshape(value, {1, size});
    case 2: {
      const std::vector<mx::Dtype> dtypes{mx::float16, mx::int8, mx::uint32, mx::int64, mx::bool_};
      return mx::astype(value, dtypes[random.below(dtypes.size())]);
    }
    case 3: {
      mx::Shape stop = value.shape();
      if (!stop.empty()) stop[random.below(stop.size())] /= 2;
      return mx::slice(value, mx::Shape(stop.size(), 0), stop);
    }
    default:
      return mx::transpose(value);
  }
}

void put_checksum(TensorFile& file) {
  const std::string& graph = file.notes["graph"];
  char sum[16];
  const auto* data = reinterpret_cast<const uint8_t*>(graph.data());
  std::snprintf(sum, sizeof(sum), "%08x", cpu::crc32c({data, graph.size()}));
  file.notes["graph_crc32c"] = sum;
}

// A whole file again, with the checksum of what it holds.
std::string rebuilt(TensorFile file, Random& random) {
  std::string& graph = file.notes["graph"];
  const size_t what = random.below(8);
  if (what < 6) graph = changed(graph, random);
  if (what >= 5 && !file.arrays.empty()) {
    auto at = file.arrays.begin();
    std::advance(at, random.below(file.arrays.size()));
    switch (random.below(3)) {
      case 0:
        file.arrays.erase(at);
        break;
      case 1: {
        auto other = file.arrays.begin();
        std::advance(other, random.below(file.arrays.size()));
        at->second = other->second;
        break;
      }
      default:
        at->second = changed(at->second, random);
    }
  }
  put_checksum(file);
  return write_tensors(file);
}

bool names_a_place(const std::string& what) {
  for (const char* word : {"line ", "byte", "tensor", "input `", "offsets", "header", "the graph",
                           "\"format\"", "\"version\"", "\"example", " twice"})
    if (what.find(word) != std::string::npos) return true;
  return what.find(": a size must") != std::string::npos ||
         what.find("larger than the file") != std::string::npos;
}

// Loads a program with `load`, and runs what it gives. Returns whether it loaded.
template <typename F>
bool loads(const F& load) {
  const auto began = std::chrono::steady_clock::now();
  bool loaded = false;
  try {
    const Program program = load();
    loaded = true;
    program.session({1000, 1 << 16, 1 << 26}).run(few_rows(program.inputs(), true));
  } catch (const Error& error) {
    const std::string what = error.what();
    EXPECT_TRUE(loaded || names_a_place(what)) << what;
  }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - began;
  EXPECT_LT(spent.count(), kMostSeconds);
  return loaded;
}

// Half are damaged bytes, half are files in order with other contents.
TEST(ProgramFuzz, HostileFiles) {
  const std::vector<std::string> all = stored_files();
  ASSERT_GE(all.size(), 2u);
  std::vector<TensorFile> open;
  for (const std::string& bytes : all)
    open.push_back(read_tensors(std::as_bytes(std::span(bytes))));
  Random random{std::mt19937(1)};
  const int64_t count = count_of(10, 300);
  int64_t loaded = 0;
  for (int64_t i = 0; i < count; ++i) {
    const size_t which = random.below(all.size());
    std::string bytes = all[which];
    if (i % 2)
      bytes = rebuilt(open[which], random);
    else
      damage(bytes, random);
    loaded += loads([&] { return Program::load_memory(std::as_bytes(std::span(bytes))); });
  }
  std::printf("%lld files, %lld loaded\n", static_cast<long long>(count),
              static_cast<long long>(loaded));
  EXPECT_GT(loaded, 0);
  EXPECT_LT(loaded, count);
}

TEST(ProgramFuzz, HostileTexts) {
  std::vector<TensorFile> open;
  for (const std::string& bytes : stored_files())
    open.push_back(read_tensors(std::as_bytes(std::span(bytes))));
  Random random{std::mt19937(2)};
  const int64_t count = count_of(50, 300);
  int64_t loaded = 0;
  for (int64_t i = 0; i < count; ++i) {
    TensorFile file = open[random.below(open.size())];
    file.notes["graph"] = changed(file.notes["graph"], random);
    put_checksum(file);
    loaded += loads([&] { return Program(load_program(std::move(file))); });
  }
  std::printf("%lld texts, %lld loaded\n", static_cast<long long>(count),
              static_cast<long long>(loaded));
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace lattice
