// parallel_for: every task once, exceptions, nested calls, concurrent callers, fork.
#include "lattice/kernels/cpu/base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace lattice::cpu {
namespace {

class Threads : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override { set_thread_count(GetParam()); }
  void TearDown() override { set_thread_count(before_); }

 private:
  int before_ = thread_count();
};

TEST_P(Threads, EveryTaskOnce) {
  for (int64_t n : {0, 1, 2, 3, 1000}) {
    std::vector<std::atomic<int>> runs(static_cast<size_t>(n));
    parallel_for(n, [&](int64_t i) { ++runs[static_cast<size_t>(i)]; });
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(runs[static_cast<size_t>(i)], 1) << i << " of " << n;
  }
}

TEST_P(Threads, ManyShortRounds) {
  // A round that ends before a worker wakes must not be entered late: its body is gone by then.
  int64_t total = 0;
  for (int round = 0; round < 3000; ++round) {
    std::atomic<int64_t> sum{0};
    parallel_for(4, [&](int64_t i) { sum += i; });
    total += sum;
  }
  EXPECT_EQ(total, 3000 * 6);
}

TEST_P(Threads, RangeCoversAll) {
  for (int64_t n : {0, 1, 99, 100, 101, 1000}) {
    std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
    parallel_range(n, 100, [&](int64_t begin, int64_t end) {
      EXPECT_LT(begin, end);
      EXPECT_LE(end - begin, 100);
      for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
    });
    for (const auto& hit : hits) ASSERT_EQ(hit, 1) << n;
  }
}

TEST_P(Threads, ExceptionReachesTheCaller) {
  for (int repeat = 0; repeat < 50; ++repeat) {
    std::atomic<int> begun{0};
    EXPECT_THROW(parallel_for(100,
                              [&](int64_t i) {
                                ++begun;
                                if (i == 7) throw std::out_of_range("seven");
                              }),
                 std::out_of_range);
    EXPECT_GE(begun, 8);
    std::atomic<int> after{0};
    parallel_for(100, [&](int64_t) { ++after; });
    ASSERT_EQ(after, 100);
  }
}

TEST_P(Threads, NestedCallsRunInTheirTask) {
  std::atomic<int> runs{0}, elsewhere{0};
  parallel_for(8, [&](int64_t) {
    const auto outer = std::this_thread::get_id();
    parallel_for(50, [&](int64_t) {
      ++runs;
      elsewhere += std::this_thread::get_id() != outer;
    });
  });
  EXPECT_EQ(runs, 400);
  EXPECT_EQ(elsewhere, 0);
}

TEST_P(Threads, NestedExceptionKeepsLaterCallsParallel) {
  EXPECT_THROW(
      parallel_for(
          4, [](int64_t) { parallel_for(4, [](int64_t) { throw std::logic_error("inner"); }); }),
      std::logic_error);
  std::atomic<int> runs{0};
  parallel_for(10, [&](int64_t) { ++runs; });
  EXPECT_EQ(runs, 10);
}

TEST_P(Threads, CallersFromSeveralThreads) {
  std::vector<int64_t> sums(4);
  std::vector<std::thread> callers;
  for (size_t c = 0; c < sums.size(); ++c)
    callers.emplace_back([&, c] {
      for (int round = 0; round < 200; ++round) {
        std::atomic<int64_t> sum{0};
        parallel_for(20, [&](int64_t i) { sum += i; });
        sums[c] += sum;
      }
    });
  for (std::thread& caller : callers) caller.join();
  for (int64_t sum : sums) EXPECT_EQ(sum, 200 * 190);
}

#if !defined(_WIN32)
TEST_P(Threads, WorksInAForkedChild) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "the thread sanitizer allows no threads in a forked child";
#endif
  std::atomic<int> warm{0};
  parallel_for(100, [&](int64_t) { ++warm; });
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::atomic<int> runs{0};
    parallel_for(100, [&](int64_t) { ++runs; });
    _exit(runs == 100 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

INSTANTIATE_TEST_SUITE_P(Count, Threads, ::testing::Values(1, 2, 5));

TEST(ThreadCount, RejectsNonsense) {
  const int before = thread_count();
  EXPECT_THROW(set_thread_count(0), std::invalid_argument);
  EXPECT_THROW(set_thread_count(-3), std::invalid_argument);
  EXPECT_THROW(set_thread_count(100000), std::invalid_argument);
  EXPECT_EQ(thread_count(), before);
}

TEST(ThreadCount, SeveralThreadsTakePart) {
  const int before = thread_count();
  set_thread_count(2);
  // Both tasks wait for each other, so one thread alone could not finish; the time limit makes a
  // failure visible.
  std::atomic<int> present{0}, met{0};
  parallel_for(2, [&](int64_t) {
    ++present;
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (present < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
    met += present == 2;
  });
  EXPECT_EQ(met, 2);
  set_thread_count(before);
}

}  // namespace
}  // namespace lattice::cpu
