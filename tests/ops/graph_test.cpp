// cpu_call, differentiable, gpu_call and the dtype switch, with a tiny bilinear operation:
//   y[i] = sum_j x[i, j] w[j]
#include <gtest/gtest.h>
#include <mlx/mlx.h>
#include <mlx/scheduler.h>

#include <cmath>
#include <limits>
#include <new>
#include <stdexcept>
#include <thread>
#include <variant>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/differentiable.h"
#include "lattice/graph/dtype.h"
#include "lattice/graph/gpu_call.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/routes/capability.h"

namespace mx = mlx::core;
using lattice::graph::Arrays;
using lattice::graph::cpu_call;
using lattice::graph::Input;
using lattice::graph::Output;

namespace {

// Sum of x * y over the last axis of two (n, m) arrays, read through their strides.
mx::array row_dot(const mx::array& x, const mx::array& y) {
  auto run = [](std::span<const Input> in, std::span<const Output> out) {
    for (int i = 0; i < in[0].shape[0]; ++i) {
      float sum = 0;
      for (int j = 0; j < in[0].shape[1]; ++j) {
        sum += in[0].as<float>()[i * in[0].strides[0] + j * in[0].strides[1]] *
               in[1].as<float>()[i * in[1].strides[0] + j * in[1].strides[1]];
      }
      out[0].as<float>()[i] = sum;
    }
  };
  return cpu_call("row_dot", "", {x, y}, {{{x.shape(0)}, mx::float32}}, run)[0];
}

// The bilinear operation with its rules; w is (m).
mx::array bilinear(const mx::array& x, const mx::array& w) {
  auto rows = [](const mx::array& w, const mx::array& like) {
    return mx::broadcast_to(w, like.shape());
  };
  auto forward = [rows](const Arrays& in) { return Arrays{row_dot(in[0], rows(in[1], in[0]))}; };
  auto vjp = [](const Arrays& in, const Arrays& dy, const Arrays&) {
    return Arrays{mx::expand_dims(dy[0], 1) * mx::expand_dims(in[1], 0),
                  bilinear(mx::transpose(in[0]), dy[0])};
  };
  auto jvp = [](const Arrays& in, const Arrays& t) {
    return Arrays{bilinear(t[0], in[1]) + bilinear(in[0], t[1])};
  };
  return lattice::graph::differentiable({x, w}, forward, vjp, jvp)[0];
}

mx::array sample(mx::Shape shape, float seed) {
  int n = 1;
  for (int d : shape) n *= d;
  return mx::reshape(mx::sin(mx::arange(0, n, mx::float32) + mx::array(seed)), shape);
}

void expect_close(const mx::array& a, const mx::array& b) {
  ASSERT_EQ(a.shape(), b.shape());
  EXPECT_TRUE(mx::allclose(a, b, 1e-5, 1e-5).item<bool>()) << a << b;
}

// The same operation of plain MLX.
mx::array plain(const mx::array& x, const mx::array& w) {
  return mx::sum(x * mx::expand_dims(w, 0), 1);
}

mx::array squared(const mx::array& y) { return mx::sum(y * y * y); }

}  // namespace

TEST(CpuCall, reads_strided_inputs) {
  mx::array x = sample({5, 3}, 0.f);
  expect_close(row_dot(mx::transpose(x), mx::transpose(x)), mx::sum(mx::square(x), 0));
  EXPECT_FALSE(row_dot(x, x).is_available());
}

TEST(CpuCall, row_contiguous_copies_only_when_needed) {
  mx::array x = sample({5, 3}, 0.f);
  mx::array t = lattice::graph::row_contiguous(mx::transpose(x));
  mx::eval(x, t);
  EXPECT_TRUE(t.flags().row_contiguous);
  mx::array same = lattice::graph::row_contiguous(x);
  mx::eval(same);
  EXPECT_EQ(same.data<float>(), x.data<float>());
}

TEST(CpuCall, empty_outputs) {
  mx::array none = mx::zeros({0, 4});
  mx::array y = row_dot(none, none);
  mx::eval(y);
  EXPECT_EQ(y.size(), 0u);
}

TEST(CpuCall, several_outputs_of_different_dtypes) {
  auto run = [](std::span<const Input> in, std::span<const Output> out) {
    for (int64_t i = 0; i < in[0].size; ++i) {
      out[0].as<int64_t>()[i] = 2 * in[0].as<int32_t>()[i];
      out[1].as<float>()[i] = 0.5f * in[0].as<int32_t>()[i];
    }
  };
  auto y = cpu_call("two", "", {mx::array({1, 2, 3})}, {{{3}, mx::int64}, {{3}, mx::float32}}, run);
  EXPECT_TRUE(mx::array_equal(y[0], mx::array({2, 4, 6}, mx::int64)).item<bool>());
  EXPECT_TRUE(mx::array_equal(y[1], mx::array({0.5f, 1.f, 1.5f})).item<bool>());
}

// A node that fails, followed by `behind` more on its stream. MLX counts tasks in groups of ten
// nodes and stops eval while more than ten groups are under way: an exception inside a task would
// leave that count wrong, and an eval would wait for ever.
mx::array failing(int behind) {
  auto run = [](std::span<const Input>, std::span<const Output>) {
    throw std::invalid_argument("on purpose");
  };
  mx::array y = cpu_call("bad", "", {mx::array(1.f)}, {{{1}, mx::float32}}, run)[0];
  for (int i = 0; i < behind; ++i) y = y + mx::array(1.f);
  return y;
}

TEST(CpuCall, a_failure_gives_nan_and_the_next_call_raises) {
  mx::array x = sample({2, 3}, 1.f);
  for (int round = 0; round < 300; ++round) {
    EXPECT_TRUE(std::isnan(failing(round % 3).item<float>()));
    try {
      row_dot(x, x);
      FAIL() << "the next call must throw";
    } catch (const std::runtime_error& error) {
      EXPECT_EQ(std::string(error.what()).rfind("[bad] failed: on purpose", 0), 0u) << error.what();
    }
    expect_close(row_dot(x, x), mx::sum(mx::square(x), 1));  // raised once
  }
  EXPECT_TRUE(std::isnan(failing(1000).item<float>()));
  EXPECT_THROW(row_dot(x, x), std::runtime_error);
  mx::array y = row_dot(x, x);
  for (int i = 0; i < 1000; ++i) y = y + mx::array(1.f);
  expect_close(y, mx::sum(mx::square(x), 1) + mx::array(1000.f));
  EXPECT_LE(mx::scheduler::n_active_tasks(), 2);
  EXPECT_GE(mx::scheduler::n_active_tasks(), -2);
}

// A kernel that finds no memory for its own use.
TEST(CpuCall, failed_outputs_are_neither_old_memory_nor_plausible) {
  auto run = [](std::span<const Input>, std::span<const Output>) {
    lattice::cpu::Buffer<char> too_large(std::numeric_limits<int64_t>::max() / 2);
  };
  auto y =
      cpu_call("bad", "", {}, {{{3}, mx::float32}, {{3}, mx::int64}, {{3}, mx::bfloat16}}, run);
  mx::eval(y);
  EXPECT_TRUE(mx::all(mx::isnan(y[0])).item<bool>());
  EXPECT_TRUE(mx::array_equal(y[1], mx::array({-1, -1, -1}, mx::int64)).item<bool>());
  EXPECT_TRUE(mx::all(mx::isnan(y[2])).item<bool>());
  EXPECT_THROW(row_dot(y[0], y[0]), std::runtime_error);
}

// The memory of results is taken on the thread that evaluates: an error there is an ordinary one.
TEST(CpuCall, results_that_are_too_large_throw_where_they_are_evaluated) {
  if (mx::is_available(mx::Device::gpu)) GTEST_SKIP() << "a GPU's allocator decides";
  auto run = [](std::span<const Input>, std::span<const Output>) { FAIL() << "must not run"; };
  const int n = 1 << 30;
  for (int round = 0; round < 30; ++round)
    EXPECT_THROW(mx::eval(cpu_call("large", "", {}, {{{n, n}, mx::float32}}, run)), std::bad_alloc);
  mx::array x = sample({2, 3}, 1.f);
  expect_close(row_dot(x, x), mx::sum(mx::square(x), 1));
}

TEST(CpuCall, vmap_says_what_is_wrong) {
  auto f = [](const mx::array& x) { return row_dot(x, x); };
  try {
    mx::vmap(std::function<mx::array(const mx::array&)>(f))(sample({2, 3, 4}, 0.f));
    FAIL() << "vmap must throw";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("[row_dot] vmap"), std::string::npos) << error.what();
  }
}

TEST(CpuCall, works_from_another_thread_and_stream) {
  mx::array x = sample({4, 4}, 0.f);
  mx::eval(x);
  std::thread([&] {
    mx::array y = row_dot(x, x);
    mx::eval(y);
    EXPECT_EQ(y.size(), 4u);
  }).join();
  auto s = mx::new_stream(mx::Device::cpu);
  EXPECT_EQ(lattice::graph::cpu_stream(s), s);
  auto ones = [](std::span<const Input>, std::span<const Output> out) {
    out[0].as<float>()[0] = 1.f;
  };
  EXPECT_EQ(cpu_call("ones", "", {}, {{{1}, mx::float32}}, ones, s)[0].item<float>(), 1.f);
}

// mx::compile merges nodes with equal name and key on equal inputs, and only those.
TEST(CpuCall, key_tells_nodes_apart) {
  int calls = 0;
  auto scaled = [&calls](const mx::array& x, float factor, std::string key) {
    auto run = [factor, &calls](std::span<const Input> in, std::span<const Output> out) {
      ++calls;
      for (int64_t i = 0; i < in[0].size; ++i)
        out[0].as<float>()[i] = factor * in[0].as<float>()[i];
    };
    return cpu_call("scaled", std::move(key), {x}, {{x.shape(), x.dtype()}}, run)[0];
  };
  auto f = mx::compile(std::function<Arrays(const Arrays&)>([&](const Arrays& in) {
    return Arrays{mx::matmul(scaled(in[0], 2.f, "2"), scaled(in[0], 2.f, "2")),
                  mx::matmul(scaled(in[0], 2.f, "2"), scaled(in[0], 3.f, "3"))};
  }));
  auto y = f({mx::array({1.f, 2.f})});
  mx::eval(y);
  EXPECT_EQ(calls, 2);
  EXPECT_EQ(y[0].item<float>(), 20.f);
  EXPECT_EQ(y[1].item<float>(), 30.f);
}

TEST(Differentiable, gradients_of_both_inputs) {
  mx::array x = sample({4, 3}, 0.f), w = sample({3}, 2.f);
  expect_close(bilinear(x, w), plain(x, w));
  for (int argnum : {0, 1}) {
    auto ours =
        mx::grad([](const Arrays& in) { return squared(bilinear(in[0], in[1])); }, argnum)({x, w});
    auto theirs =
        mx::grad([](const Arrays& in) { return squared(plain(in[0], in[1])); }, argnum)({x, w});
    expect_close(ours[0], theirs[0]);
  }
}

TEST(Differentiable, gradients_of_gradients) {
  mx::array x = sample({4, 3}, 0.f), w = sample({3}, 2.f);
  auto second = [&](auto op, int first, int then) {
    auto inner = [op, first](const Arrays& in) {
      auto g = mx::grad([op](const Arrays& a) { return squared(op(a[0], a[1])); }, first)(in);
      return mx::sum(mx::square(g[0]));
    };
    return mx::grad(inner, then)({x, w})[0];
  };
  for (int first : {0, 1}) {
    for (int then : {0, 1}) expect_close(second(bilinear, first, then), second(plain, first, then));
  }
}

TEST(Differentiable, forward_mode_and_its_mixtures) {
  mx::array x = sample({4, 3}, 0.f), w = sample({3}, 2.f), dx = sample({4, 3}, 5.f),
            dw = sample({3}, 6.f);
  auto pair = [](auto op) {
    return std::function<Arrays(const Arrays&)>(
        [op](const Arrays& in) { return Arrays{op(in[0], in[1])}; });
  };
  expect_close(mx::jvp(pair(bilinear), {x, w}, {dx, dw}).second[0],
               mx::jvp(pair(plain), {x, w}, {dx, dw}).second[0]);
  // One input varies, the other is captured.
  auto only_w = [&](auto op) {
    return std::function<Arrays(const Arrays&)>(
        [&, op](const Arrays& in) { return Arrays{op(x, in[0])}; });
  };
  expect_close(mx::jvp(only_w(bilinear), {w}, {dw}).second[0],
               mx::jvp(only_w(plain), {w}, {dw}).second[0]);
  // Reverse over forward.
  auto tangent = [&](auto op) {
    return [&, op](const Arrays& in) {
      return mx::sum(mx::square(mx::jvp(pair(op), in, {dx, dw}).second[0]));
    };
  };
  for (int argnum : {0, 1}) {
    expect_close(mx::grad(tangent(bilinear), argnum)({x, w})[0],
                 mx::grad(tangent(plain), argnum)({x, w})[0]);
  }
}

TEST(Differentiable, compiled) {
  mx::array x = sample({4, 3}, 0.f), w = sample({3}, 2.f);
  using Function = std::function<Arrays(const Arrays&)>;
  Function value = [](const Arrays& in) { return Arrays{squared(bilinear(in[0], in[1]))}; };
  auto scalar = [](Function f) { return [f](const Arrays& in) { return f(in)[0]; }; };
  auto expected =
      mx::grad([](const Arrays& in) { return squared(plain(in[0], in[1])); }, {0, 1})({x, w});
  auto compiled_grad = mx::compile(Function(mx::grad(scalar(value), {0, 1})));
  auto grad_compiled = mx::grad(scalar(mx::compile(value)), {0, 1});
  for (int i : {0, 1}) {
    expect_close(compiled_grad({x, w})[i], expected[i]);
    expect_close(grad_compiled({x, w})[i], expected[i]);
  }
  // Second call of the same compiled graph with other numbers.
  mx::array x2 = sample({4, 3}, 9.f);
  auto expected2 =
      mx::grad([](const Arrays& in) { return squared(plain(in[0], in[1])); }, {0, 1})({x2, w});
  expect_close(compiled_grad({x2, w})[0], expected2[0]);
}

TEST(Dtype, visits_the_right_type) {
  using lattice::graph::visit_float;
  using lattice::graph::visit_int;
  auto same = [](mx::Dtype dtype) {
    return [dtype](auto tag) {
      return static_cast<mx::Dtype>(mx::TypeToDtype<decltype(tag)>()).val() == dtype.val();
    };
  };
  for (auto d : {mx::float32, mx::float16, mx::bfloat16}) EXPECT_TRUE(visit_float(d, same(d)));
  for (auto d : {mx::int32, mx::int64}) EXPECT_TRUE(visit_int(d, same(d)));
  try {
    visit_float(mx::int32, same(mx::int32), "conv");
    FAIL();
  } catch (const std::invalid_argument& error) {
    EXPECT_STREQ(
        error.what(),
        "[conv] dtype: found int32, expected float32, float16 or bfloat16; convert it with "
        "astype, kernels take float32 and float16 (also bfloat16)");
  }
  EXPECT_THROW(visit_int(mx::float32, same(mx::float32)), std::invalid_argument);
}

namespace {

lattice::graph::GpuCall doubling(int n) {
  lattice::graph::GpuCall call;
  call.name = "doubling";
  const char* const twice = "template <typename T> T twice(T v) { return v + v; }\n";
  call.header = {"doubling", twice, twice};
  call.source = "uint i = thread_position_in_grid.x; y[i] = twice<T>(x[i]);";
  call.input_names = {"x"};
  call.output_names = {"y"};
  call.outputs = {{{n}, mx::float32}};
  call.template_args = {{"T", mx::float32}};
  call.grid = {n, 1, 1};
  call.threadgroup = {64, 1, 1};
  return call;
}

}  // namespace

TEST(GpuCall, says_that_there_is_no_metal) {
  if (mx::metal::is_available()) GTEST_SKIP() << "this machine has Metal";
  mx::array x = mx::ones({100});
  try {
    lattice::graph::gpu_call(doubling(100), {x});
    FAIL() << "must throw";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(std::string(error.what()).rfind("[doubling] found no Metal or CUDA device", 0), 0u)
        << error.what();
  }
}

TEST(GpuCall, runs_where_metal_is) {
  if (!mx::metal::is_available()) GTEST_SKIP() << "no Metal here";
  mx::array x = sample({100}, 0.f);
  expect_close(lattice::graph::gpu_call(doubling(100), {x}, mx::Device::gpu)[0], x + x);
}

// A stand-in for Metal is given the call in Metal's words, and its answer is the result.
TEST(GpuCall, stand_in_runs_the_call) {
  if (mx::metal::is_available()) GTEST_SKIP() << "this machine has Metal";
  EXPECT_FALSE(lattice::on_gpu({}));
  lattice::graph::GpuCall seen;
  lattice::graph::stand_in().run = [&](const auto& call, const Arrays& in, const auto&) {
    seen = call;
    EXPECT_EQ(in.size(), 1u);
    mx::array given = in[0];
    given.eval();
    EXPECT_TRUE(given.flags().row_contiguous);
    return Arrays{in[0] * mx::array(3.f)};
  };
  EXPECT_TRUE(lattice::on_gpu({}));
  const mx::array x = mx::transpose(sample({10, 10}, 0.f));
  const mx::array y = lattice::graph::gpu_call(doubling(100), {mx::reshape(x, {100})})[0];
  lattice::graph::stand_in() = {};
  expect_close(y, mx::reshape(x, {100}) * mx::array(3.f));
  EXPECT_EQ(seen.grid[0], 100);
  EXPECT_EQ(seen.threadgroup[0], 64);
  EXPECT_EQ(seen.source, doubling(100).source);
  EXPECT_FALSE(lattice::on_gpu({}));
}

TEST(GpuCall, empty_grid_needs_no_metal) {
  auto y = lattice::graph::gpu_call(doubling(0), {mx::ones({0})});
  mx::eval(y);
  EXPECT_EQ(y[0].size(), 0u);
  EXPECT_THROW(lattice::graph::gpu_call(doubling(1), {}), std::invalid_argument);
}

// While a function is exported MLX builds the node on every machine; its state holds the text that
// Metal would get.
TEST(GpuCall, text_can_be_read_without_metal) {
  if (mx::metal::is_available()) GTEST_SKIP() << "this machine compiles the text itself";
  std::string all;
  auto callback = [&all](const mx::ExportCallbackInput& event) {
    for (const auto& [key, value] : event) {
      if (const auto* states = std::get_if<std::vector<mx::StateT>>(&value)) {
        for (const auto& state : *states) {
          if (const auto* text = std::get_if<std::string>(&state)) all += *text;
        }
      }
    }
  };
  auto f = [](const mx::Args& in) { return lattice::graph::gpu_call(doubling(100), in); };
  mx::export_function(mx::ExportCallback(callback), std::function<Arrays(const mx::Args&)>(f),
                      {mx::ones({100})});
  EXPECT_NE(all.find("T twice(T v)"), std::string::npos) << all;
  EXPECT_NE(all.find("y[i] = twice<T>(x[i]);"), std::string::npos);
}
