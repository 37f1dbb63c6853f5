// Programs: text and back, sessions, threads, limits, and hostile files.
#include "lattice/program/program.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cstdio>
#include <cstdlib>
#include <random>
#include <thread>

#include "lattice/kernels/cpu/base/checksum.h"
#include "lattice/program/executor.h"

namespace lattice {
namespace {

using namespace program;

// Written when programs came: a MinkUNet with its example.
constexpr const char* kStored = "programs/mink_2026_11.lattice.safetensors";

// Several kinds of operations in a few lines.
constexpr const char* kText =
    "lattice-program 1\n"
    "input x: sparse f32[?, 4] stride=[1,1,1]\n"
    "input p: f32[?, 3]\n"
    "input n: i32[?] lengths of p\n"
    "a = subm_conv3d@1(x, \"w\", _) kernel_size=[3,3,3] dilation=[1,1,1] groups=1\n"
    "b = conv3d@1(a, \"v\", \"bias\", _) kernel_size=[2,2,2] stride=[2,2,2] padding=[0,0,0] "
    "dilation=[1,1,1] groups=1\n"
    "c = pool_transpose3d@1(b, a) kernel_size=[2,2,2] stride=[2,2,2] padding=[0,0,0] "
    "dilation=[1,1,1]\n"
    "d = cat@1([a, c]) join=\"inner\"\n"
    "e = attention_windows@1(d) size=[4,4,4] shift=[0,0,0]\n"
    "f = feats@1(d)\n"
    "g, h = to_slots@1(f, e) parts=2\n"
    "i = reshape@1(g) shape=[-1,2,4]\n"
    "j = layout_offsets@1(e)\n"
    "k = attention@1(i, i, i, j, _, _, _) scale=0.5 causal=0\n"
    "l = max@1(k) axes=[1] keepdims=0\n"
    "m = slice@1(l) start=[0,1] stop=[2147483647,3] step=[1,1] squeeze=[]\n"
    "o, q = sample_centers@1(p, n) share=0.5\n"
    "r = take@1(p, o) axis=0\n"
    "s = segment_reduce@1(r, q) operation=\"max\" ties=\"split\" empty_value=0\n"
    "t = point_set@1(p, n) grid=0.25\n"
    "u = build_rulebook@1(t, t) kernel_size=3 rfs=1 shape=\"ball\" radius=none allow_empty=1\n"
    "z = multiply@1(s, 2)\n"
    "output y = m\n"
    "output z = z\n";

std::string text() { return kText; }

std::map<std::string, mx::array> tensors() {
  return {
      {"w", mx::ones({8, 3, 3, 3, 4})}, {"v", mx::ones({8, 2, 2, 2, 8})}, {"bias", mx::ones({8})}};
}

TensorFile file_of(const std::string& graph) {
  char sum[16];
  const auto* data = reinterpret_cast<const uint8_t*>(graph.data());
  std::snprintf(sum, sizeof(sum), "%08x", cpu::crc32c({data, graph.size()}));
  return {
      tensors(),
      {{"format", "lattice-program"}, {"version", "1"}, {"graph", graph}, {"graph_crc32c", sum}}};
}

std::string stored() { return read_bytes(kStored); }

Program load(const std::string& bytes) {
  return Program::load_memory(std::as_bytes(std::span(bytes)));
}

bool same(const ProgramValue& a, const ProgramValue& b) {
  std::vector<mx::array> left, right;
  append_arrays(a, left);
  append_arrays(b, right);
  return left.size() == 1 && right.size() == 1 && mx::array_equal(left[0], right[0]).item<bool>();
}

int64_t fuzz_count(int64_t otherwise) {
  const char* given = std::getenv("LATTICE_FUZZ");
  return given ? std::atoll(given) : otherwise;
}

TEST(Program, TextIsCanonical) {
  const std::string once = print_graph(parse_graph(text()));
  EXPECT_EQ(once, text());
  EXPECT_EQ(print_graph(parse_graph(once)), once);
  const auto loaded = load_program(file_of(once));
  EXPECT_EQ(loaded->outputs[0].type.shape, (std::vector<int64_t>{-1, 2}));
  EXPECT_EQ(loaded->outputs[1].type.shape, (std::vector<int64_t>{-1, 3}));
}

TEST(Program, FilesAreCanonical) {
  const std::string bytes = write_tensors(file_of(text()));
  EXPECT_EQ(write_tensors(read_tensors(std::as_bytes(std::span(bytes)))), bytes);
}

TEST(Program, StoredFileGivesItsResult) {
  const Program program = Program::load(kStored);
  ASSERT_TRUE(program.has_example());
  const auto [inputs, outputs] = program.example();
  const auto found = program.session().run(inputs);
  std::vector<mx::array> a, b;
  append_arrays(found.at("output"), a);
  append_arrays(outputs.at("output"), b);
  EXPECT_TRUE(mx::allclose(a[0], b[0], 1e-5, 1e-5).item<bool>());
}

TEST(Program, ThreadsAndPreparedFramesGiveTheSame) {
  const Program program = Program::load(kStored);
  const ProgramValues inputs = program.example().first;
  auto session = program.session();
  const auto expected = session.run(inputs);
  EXPECT_EQ(session.stats().rows.size(), 5u);
  EXPECT_GT(session.stats().bytes, 0);
  std::vector<ProgramValues> found(4);
  std::vector<std::thread> workers;
  for (size_t i = 0; i < found.size(); ++i)
    workers.emplace_back([&, i] {
      auto own = program.session();
      found[i] = i % 2 ? own.run(own.prepare(inputs)) : own.run(inputs);
    });
  for (std::thread& worker : workers) worker.join();
  for (const auto& values : found) EXPECT_TRUE(same(values.at("output"), expected.at("output")));
}

TEST(Program, LimitsAndNames) {
  const Program program = Program::load(kStored);
  const ProgramValues inputs = program.example().first;
  for (const ProgramLimits& limits :
       {ProgramLimits{3, 0, 0}, ProgramLimits{0, 3, 0}, ProgramLimits{0, 0, 8}}) {
    try {
      program.session(limits).run(inputs);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::limit);
      EXPECT_TRUE(error.argument().starts_with("max_"));
    }
  }
  auto session = program.session();
  session.trace({"v1"});
  session.run(inputs);
  EXPECT_EQ(session.traced().count("v1"), 1u);
  EXPECT_THROW(session.trace({"nothing"}), Error);
  EXPECT_THROW(session.run({}), Error);
}

// One of the usual ways in which bytes go wrong.
void damage(std::string& bytes, std::mt19937& random) {
  const auto below = [&](size_t n) { return n ? random() % n : 0; };
  for (size_t n = 1 + below(4); n > 0 && !bytes.empty(); --n) {
    // Mostly in the header, where the sizes are.
    const size_t at = below(below(4) ? std::min<size_t>(bytes.size(), 9000) : bytes.size());
    switch (below(6)) {
      case 0:
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << below(8)));
        break;
      case 1:
        bytes[at] = static_cast<char>(random());
        break;
      case 2:
        bytes.resize(at);
        break;
      case 3:
        bytes.erase(at, 1 + below(16));
        break;
      case 4:
        bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(16)));
        break;
      default:
        bytes[at] = "0123456789[]{},:\"-"[below(18)];
    }
  }
}

TEST(Program, DamagedFilesAreRefused) {
  const std::string whole = stored();
  std::mt19937 random(1);
  const int64_t count = fuzz_count(400);
  for (int64_t i = 0; i < count; ++i) {
    std::string bytes = whole;
    damage(bytes, random);
    try {
      load(bytes);
    } catch (const Error& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
    }
  }
}

// Words and numbers of a text put into other places.
std::string changed(std::string graph, std::mt19937& random) {
  const auto below = [&](size_t n) { return n ? random() % n : 0; };
  static const std::vector<std::string> kWords = {"0",     "-1",   "7",   "2147483647", "1e30",
                                                  "nan",   "none", "_",   "[]",         "[a, b]",
                                                  "\"w\"", "x",    "999", "-0.5",       "@2"};
  for (size_t n = 1 + below(3); n > 0; --n) {
    const size_t from = graph.find_first_of("0123456789abcdexyz_\"[", below(graph.size()));
    if (from == std::string::npos) continue;
    const size_t end = graph.find_first_of(" ,()[]=\n", from);
    const size_t length = end == std::string::npos ? 1 : std::max<size_t>(1, end - from);
    if (below(5) == 0)
      graph.erase(from, length);
    else
      graph.replace(from, length, kWords[below(kWords.size())]);
  }
  return graph;
}

TEST(Program, ChangedTextsAreRefusedOrLoad) {
  std::mt19937 random(2);
  const int64_t count = fuzz_count(400);
  int64_t loaded = 0;
  for (int64_t i = 0; i < count; ++i) {
    const std::string graph = changed(text(), random);
    try {
      load_program(file_of(graph));
      ++loaded;
    } catch (const Error& error) {
      const std::string what = error.what();
      EXPECT_TRUE(what.find("line ") != std::string::npos ||
                  what.find("tensor") != std::string::npos ||
                  what.find("input `") != std::string::npos)
          << what;
    }
  }
  EXPECT_GT(loaded, 0);
}

}  // namespace
}  // namespace lattice
