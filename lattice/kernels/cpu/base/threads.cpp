#include "lattice/kernels/cpu/base/threads.h"

#include <atomic>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif

#include "lattice/kernels/cpu/base/simd.h"

namespace lattice::cpu {
namespace {

constexpr int kMaxThreads = 256;
// How often a thread polls before it sleeps: 10 to 30 microseconds, about what a wake-up costs.
// Polling longer only takes time from other threads: with 200 microseconds of polling and yielding,
// two programs on two cores built 15 to 25 % fewer relations.
constexpr int kSpins = 300;

// Tells the core that this is a waiting loop.
void relax() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

int initial_count() {
  check_simd();
  if (const char* text = std::getenv("LATTICE_NUM_THREADS")) {
    char* end = nullptr;
    long n = std::strtol(text, &end, 10);
    if (end != text && *end == '\0' && n >= 1)
      return n > kMaxThreads ? kMaxThreads : static_cast<int>(n);
  }
  unsigned n = std::thread::hardware_concurrency();
  return n == 0 ? 1 : n > kMaxThreads ? kMaxThreads : static_cast<int>(n);
}

std::atomic<int>& wanted_count() {
  static std::atomic<int> count{initial_count()};
  return count;
}

thread_local bool inside_task = false;

// A run of tasks, on a cache line of its own.
struct alignas(64) Share {
  std::atomic<int64_t> next{0};
  int64_t end = 0;
};

// Each thread takes the tasks of its own share first, then those that others have left. So the
// pieces of an array go to the same thread in one loop after the other, and stay in its cache.
struct Job {
  void (*body)(void*, int64_t) = nullptr;
  void* context = nullptr;
  std::vector<Share> shares;
  std::atomic<bool> failed{false};
  std::mutex error_mutex;
  std::exception_ptr error;

  Job(int64_t n, int threads) : shares(static_cast<size_t>(threads)) {
    for (int64_t t = 0; t < threads; ++t) {
      shares[static_cast<size_t>(t)].next = n * t / threads;
      shares[static_cast<size_t>(t)].end = n * (t + 1) / threads;
    }
  }

  void work(size_t own) {
    inside_task = true;
    for (size_t s = 0; s < shares.size(); ++s) {
      Share& share = shares[(own + s) % shares.size()];
      for (;;) {
        const int64_t i = share.next.fetch_add(1, std::memory_order_relaxed);
        if (i >= share.end || failed.load(std::memory_order_relaxed)) break;
        run(i);
      }
    }
    inside_task = false;
  }

 private:
  void run(int64_t i) {
    try {
      body(context, i);
    } catch (...) {
      std::lock_guard lock(error_mutex);
      if (!error) error = std::current_exception();
      failed.store(true, std::memory_order_relaxed);
    }
  }
};

// Workers wait for a new round. The caller opens a round, takes part, and closes it when every
// worker that entered left.
class Pool {
 public:
  void run(Job& job, int helpers) {
    std::lock_guard turn(turn_);
    helpers = grow(helpers);
    {
      std::lock_guard lock(mutex_);
      job_ = &job;
      open_ = helpers;
      round_.fetch_add(1, std::memory_order_release);
    }
    wake_.notify_all();
    job.work(0);
    for (int spin = 0; spin < kSpins && busy_.load(std::memory_order_acquire) > 0; ++spin) relax();
    std::unique_lock lock(mutex_);
    open_ = 0;  // workers that come late find the round closed
    done_.wait(lock, [&] { return busy_.load(std::memory_order_acquire) == 0; });
    job_ = nullptr;
  }

 private:
  // Starts workers until there are `wanted`; returns how many there are, if fewer. The caller can
  // do all the work alone, so it is no error if the system refuses more threads.
  int grow(int wanted) {
    try {
      for (; workers_ < wanted; ++workers_)
        std::thread([this, own = static_cast<size_t>(workers_) + 1] { loop(own); }).detach();
    } catch (const std::system_error&) {
      return workers_;
    }
    return wanted;
  }

  void loop(size_t own) {
    uint64_t seen = 0;
    for (;;) {
      for (int spin = 0; spin < kSpins && round_.load(std::memory_order_acquire) == seen; ++spin)
        relax();
      Job* job = nullptr;
      {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return round_.load(std::memory_order_relaxed) != seen; });
        seen = round_.load(std::memory_order_relaxed);
        if (open_ == 0) continue;
        --open_;
        busy_.fetch_add(1, std::memory_order_relaxed);
        job = job_;
      }
      job->work(own);
      std::lock_guard lock(mutex_);
      busy_.fetch_sub(1, std::memory_order_release);
      done_.notify_one();
    }
  }

  std::mutex turn_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::atomic<uint64_t> round_{0};
  std::atomic<int> busy_{0};
  Job* job_ = nullptr;
  int open_ = 0;     // workers that may still enter the round
  int workers_ = 0;  // guarded by turn_
};

// Never destroyed: detached workers may outlive static destruction. After fork the child has no
// workers, so it gets a new pool.
std::atomic<Pool*> the_pool{nullptr};

Pool& pool() {
  static std::once_flag once;
  std::call_once(once, [] {
    the_pool.store(new Pool);
#if !defined(_WIN32)
    pthread_atfork(nullptr, nullptr, [] { the_pool.store(new Pool); });
#endif
  });
  return *the_pool.load();
}

}  // namespace

int thread_count() { return wanted_count().load(std::memory_order_relaxed); }

void set_thread_count(int n) {
  if (n < 1 || n > kMaxThreads)
    throw std::invalid_argument("[set_thread_count] n must be in 1.." +
                                std::to_string(kMaxThreads) + ", got " + std::to_string(n));
  wanted_count().store(n, std::memory_order_relaxed);
}

void parallel_run(int64_t n, void (*body)(void*, int64_t), void* context) {
  int threads = thread_count();
  if (n <= 1 || threads <= 1 || inside_task) {
    for (int64_t i = 0; i < n; ++i) body(context, i);
    return;
  }
  const int helpers = static_cast<int>(n - 1 < threads - 1 ? n - 1 : threads - 1);
  Job job(n, helpers + 1);
  job.body = body;
  job.context = context;
  pool().run(job, helpers);
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace lattice::cpu
