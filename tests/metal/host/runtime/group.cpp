#include "group.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "check.h"
#include "fibers.h"

namespace msl {
namespace {

constexpr uint32_t kLanes = 32;
constexpr uint32_t kThreadgroupBytes = 32768, kThreads = 1024;
constexpr uint32_t kOrdersDevice = 1, kOrdersThreadgroup = 2;  // mem_flags

// What the lanes of a simdgroup hand each other. Two halves: a fast lane may be one rendezvous
// ahead of a slow one.
struct Simdgroup {
  alignas(16) uint8_t values[2][kLanes * 64];
  uint32_t turn = 0;
};

Group the_group;
Simdgroup simdgroups[kThreads / kLanes];
std::mt19937 random_numbers;
Order order = Order::forward;
uint32_t fails = 0;

void wait(State state, uint32_t flags, uint32_t size, uint32_t site) {
  Fiber& f = fiber(current());
  f.state = state;
  f.flags = flags;
  f.size = size;
  f.site = site;
  pause();
}

uint32_t matrix_places[2 * kLanes];  // 8 * row + column of the two elements of each lane
uint32_t tensor_layout = 0;

void lay_out(uint32_t layout) {
  tensor_layout = layout % 3;
  for (uint32_t lane = 0; lane < kLanes; ++lane)
    for (uint32_t j = 0; j < 2; ++j)
      matrix_places[2 * lane + j] =
          8 * ((lane / 4 & 4) + lane / 2 % 4) + (lane / 4 & 2) * 2 + lane % 2 * 2 + j;
  std::mt19937 numbers(layout);
  if (layout) std::shuffle(std::begin(matrix_places), std::end(matrix_places), numbers);
}

// Lets the lanes of a simdgroup go on when all of them wait. Returns whether any does.
bool meet(uint32_t which) {
  const uint32_t first = which * kLanes, n = std::min(kLanes, the_group.threads - first);
  const Fiber* leader = nullptr;
  uint32_t mask = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const Fiber& f = fiber(first + i);
    if (f.state == State::ready) return false;
    if (f.state != State::in_simdgroup) continue;
    if (!leader) leader = &f;
    if (f.site == leader->site && f.size == leader->size) mask |= 1u << i;
  }
  if (!leader) return false;
  const bool all = mask == (n == kLanes ? ~0u : (1u << n) - 1);
  const uint32_t site = leader->site, size = leader->size, flags = leader->flags;
  if (!all && !told(site, ~0ull)) {
    mistake("divergent simdgroup operation at " + site_name(site) + ": " +
            std::to_string(__builtin_popcount(mask)) + " of " + std::to_string(n) +
            " lanes take part, " + thread_name(first) + " is the first of them");
  }
  for (uint32_t i = 0; i < n; ++i) {
    if (!(mask >> i & 1)) continue;
    Fiber& f = fiber(first + i);
    f.state = State::ready;
    f.mask = mask;
    if (size == 0) {
      f.device_epoch += (flags & kOrdersDevice) != 0;
      f.threadgroup_epoch += (flags & kOrdersThreadgroup) != 0;
    }
  }
  if (size) ++simdgroups[which].turn;
  return true;
}

// All threads wait at a barrier or are done. Returns whether any goes on.
bool pass_barrier() {
  const Fiber* leader = nullptr;
  uint32_t waiting = 0;
  bool mixed = false;
  for (uint32_t i = 0; i < the_group.threads; ++i) {
    const Fiber& f = fiber(i);
    if (f.state != State::at_threadgroup_barrier) continue;
    ++waiting;
    if (!leader) leader = &f;
    mixed |= f.site != leader->site;
  }
  if (!leader) return false;
  const uint32_t flags = leader->flags;
  if ((mixed || waiting < the_group.threads) && !told(leader->site, ~1ull)) {
    mistake("divergent barrier at " + site_name(leader->site) + ": " + std::to_string(waiting) +
            " of " + std::to_string(the_group.threads) + " threads wait" +
            (mixed ? " at different barriers" : ", the others returned") + ", " + thread_name(0) +
            " is the first of the group");
  }
  the_group.device_epoch += (flags & kOrdersDevice) != 0;
  the_group.threadgroup_epoch += (flags & kOrdersThreadgroup) != 0;
  for (uint32_t i = 0; i < the_group.threads; ++i) {
    if (fiber(i).state == State::at_threadgroup_barrier) fiber(i).state = State::ready;
  }
  return true;
}

void arrange(std::vector<uint32_t>& sequence) {
  if (order == Order::random) std::shuffle(sequence.begin(), sequence.end(), random_numbers);
}

void run_group() {
  std::vector<uint32_t> sequence(the_group.threads);
  std::iota(sequence.begin(), sequence.end(), 0u);
  if (order == Order::reverse) std::reverse(sequence.begin(), sequence.end());
  arrange(sequence);
  while (!the_group.stopped) {
    bool ran = false;
    for (const uint32_t i : sequence) {
      if (fiber(i).state != State::ready) continue;
      resume(i);
      ran = true;
      if (the_group.stopped) return;
    }
    for (uint32_t s = 0; s * kLanes < the_group.threads; ++s) ran |= meet(s);
    if (ran) continue;
    if (!pass_barrier()) return;
    arrange(sequence);
  }
}

// Threads of the group at `at`, whose full size is `full`; the last group of an axis may be
// smaller.
void place_threads(const Launch& launch, const uint32_t* at, const uint32_t* full,
                   const uint32_t* groups) {
  uint32_t size[3];
  for (int a = 0; a < 3; ++a) size[a] = std::min(full[a], launch.grid[a] - at[a] * full[a]);
  const uint32_t n = size[0] * size[1] * size[2];
  the_group.threads = n;
  static std::vector<const uint8_t*> arguments;
  arguments.clear();
  for (const Buffer& buffer : launch.buffers) arguments.push_back(buffer.data);
  for (uint32_t i = 0; i < n; ++i) {
    prepare(i, launch.entry, reinterpret_cast<size_t>(arguments.data()));
    Fiber& f = fiber(i);
    f.device_epoch = f.threadgroup_epoch = 1;
    Place& p = f.place;
    const uint32_t within[3] = {i % size[0], i / size[0] % size[1], i / size[0] / size[1]};
    for (int a = 0; a < 3; ++a) {
      p.thread_position_in_threadgroup[a] = within[a];
      p.threadgroup_position_in_grid[a] = at[a];
      p.thread_position_in_grid[a] = at[a] * full[a] + within[a];
      p.threads_per_threadgroup[a] = size[a];
      p.threads_per_grid[a] = launch.grid[a];
      p.threadgroups_per_grid[a] = groups[a];
      p.dispatch_threads_per_threadgroup[a] = full[a];
    }
    p.thread_index_in_threadgroup = i;
    p.thread_index_in_simdgroup = i % kLanes;
    p.simdgroup_index_in_threadgroup = i / kLanes;
    p.simdgroups_per_threadgroup = (n + kLanes - 1) / kLanes;
    p.threads_per_simdgroup = kLanes;
    p.thread_index_in_quadgroup = i % 4;
    p.quadgroup_index_in_threadgroup = i / 4;
    p.quadgroups_per_threadgroup = (n + 3) / 4;
  }
}

}  // namespace

Group& group() { return the_group; }

std::string thread_name(uint32_t i) {
  const uint32_t* at = fiber(i).place.threadgroup_position_in_grid;
  return "thread " + std::to_string(i) + " of group (" + std::to_string(at[0]) + ", " +
         std::to_string(at[1]) + ", " + std::to_string(at[2]) + ")";
}

std::string site_name(uint32_t site) { return "line " + std::to_string(site >> 10); }

void run(const Launch& launch) {
  random_numbers.seed(launch.seed);
  order = launch.order;
  fails = launch.fails;
  lay_out(launch.layout);
  the_group = {};
  size_t bytes = 0;
  for (const Buffer& buffer : launch.threadgroup) bytes += (buffer.bytes + 15) / 16 * 16;
  if (bytes > kThreadgroupBytes)
    mistake("threadgroup memory: " + std::to_string(bytes) + " bytes, at most " +
            std::to_string(kThreadgroupBytes));
  uint32_t full[3], groups[3];
  for (int a = 0; a < 3; ++a) {
    full[a] = std::min(launch.group[a], launch.grid[a]);  // as MLX does
    groups[a] = full[a] ? (launch.grid[a] + full[a] - 1) / full[a] : 0;
  }
  if (full[0] * full[1] * full[2] > kThreads)
    return mistake("too many threads: " + std::to_string(full[0] * full[1] * full[2]) +
                   " in a group, at most 1024");
  start_check(launch);
  std::vector<uint32_t> sequence(groups[0] * groups[1] * groups[2]);
  std::iota(sequence.begin(), sequence.end(), 0u);
  if (launch.last && launch.last < sequence.size())
    sequence.erase(sequence.begin(), sequence.end() - launch.last);
  if (order == Order::reverse) std::reverse(sequence.begin(), sequence.end());
  arrange(sequence);
  for (const uint32_t g : sequence) {
    const uint32_t at[3] = {g % groups[0], g / groups[0] % groups[1], g / groups[0] / groups[1]};
    the_group = {.number = g};
    // Memory of a new group holds anything: here bytes that make NaN.
    for (const Buffer& buffer : launch.threadgroup) std::memset(buffer.data, 0xff, buffer.bytes);
    place_threads(launch, at, full, groups);
    run_group();
    if (the_group.stopped) return;
  }
  finish_check(launch);
}

}  // namespace msl

using namespace msl;

extern "C" {

uint32_t msl_lane() { return current() % kLanes; }
uint32_t msl_matrix_place(uint32_t j) { return matrix_places[2 * msl_lane() + j]; }
uint32_t msl_tensor_layout() { return tensor_layout; }
void msl_count_matrix_flop(uint32_t flop) { counts().matrix_flop += flop; }
uint32_t msl_fails_for_no_reason() { return fails && random_numbers() % fails == 0; }
void msl_threadgroup_barrier(uint32_t flags, uint32_t site) {
  wait(State::at_threadgroup_barrier, flags, 0, site);
}
void msl_simdgroup_barrier(uint32_t flags, uint32_t site) {
  wait(State::in_simdgroup, flags, 0, site);
}

__attribute__((no_sanitize("address"))) uint32_t msl_exchange(size_t mine, uint32_t size,
                                                              size_t all, uint32_t site) {
  Simdgroup& s = simdgroups[current() / kLanes];
  uint8_t* values = s.values[s.turn & 1];
  std::memcpy(values + msl_lane() * size, reinterpret_cast<const void*>(mine), size);
  wait(State::in_simdgroup, 0, size, site);
  std::memcpy(reinterpret_cast<void*>(all), values, size_t{kLanes} * size);
  return fiber(current()).mask;
}

void msl_multiply_matrices(float a0, float a1, float b0, float b1, size_t sums, uint32_t site) {
  Simdgroup& s = simdgroups[current() / kLanes];
  auto* a = reinterpret_cast<float*>(s.values[s.turn & 1]);
  float* b = a + 64;
  const uint32_t at[2] = {msl_matrix_place(0), msl_matrix_place(1)};
  a[at[0]] = a0;
  a[at[1]] = a1;
  b[at[0]] = b0;
  b[at[1]] = b1;
  wait(State::in_simdgroup, 0, 16, site);
  counts().matrix_flop += 32;  // of 8 * 8 * 8 * 2, a lane's share
  auto* sum = reinterpret_cast<float*>(sums);
  for (uint32_t k = 0; k < 8; ++k)
    for (uint32_t j = 0; j < 2; ++j)
      sum[j] = std::fmaf(a[at[j] / 8 * 8 + k], b[k * 8 + at[j] % 8], sum[j]);
}

// In a random order another thread may come before any atomic.
void msl_atomic_access(size_t address, uint32_t size, uint32_t writes) {
  check_access(address, size, writes != 0, /*atomic=*/true,
               reinterpret_cast<size_t>(__builtin_return_address(0)));
  if (order == Order::random && random_numbers() % 4 == 0) {
    fiber(current()).state = State::ready;
    pause();
  }
}
}
