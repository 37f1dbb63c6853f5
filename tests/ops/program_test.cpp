// Programs: text and back, sessions, threads, limits.
#include "lattice/program/program.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cstdio>
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

bool same(const ProgramValue& a, const ProgramValue& b) {
  std::vector<mx::array> left, right;
  append_arrays(a, left);
  append_arrays(b, right);
  return left.size() == 1 && right.size() == 1 && mx::array_equal(left[0], right[0]).item<bool>();
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

}  // namespace
}  // namespace lattice
