// One launch of a kernel: what the worker was told, and what it has to say about it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace msl {

struct Buffer {
  std::string name;
  uint8_t* data = nullptr;
  size_t bytes = 0;
  uint32_t item = 1;  // bytes that are checked as one
  bool writable = false, filled = true, threadgroup = false;
};

enum class Order { forward, reverse, random };

using Entry = void (*)(size_t buffers, size_t place);

struct Launch {
  Entry entry = nullptr;
  size_t base = 0, end = 0;  // where the kernel's code and constants are loaded
  uint32_t grid[3] = {1, 1, 1}, group[3] = {1, 1, 1};
  Order order = Order::forward;
  uint32_t seed = 0;
  uint32_t fails = 0;  // one of so many weak compare-exchanges fails for no reason; 0: none
  // Which lane holds which element of a matrix. 0: simdgroup matrices as MLX's kernels rely on;
  // else a permutation of this seed. Tensors have three layouts: layout % 3.
  uint32_t layout = 0;
  uint32_t last = 0;  // only so many groups run, the last of the grid; 0: all
  std::vector<Buffer> buffers, threadgroup;
};

// Where a thread is. entry.py reads the members by number.
struct Place {
  uint32_t thread_position_in_grid[3], thread_position_in_threadgroup[3],
      threadgroup_position_in_grid[3];
  uint32_t threads_per_threadgroup[3], threads_per_grid[3], threadgroups_per_grid[3],
      dispatch_threads_per_threadgroup[3];
  uint32_t thread_index_in_threadgroup, thread_index_in_simdgroup, simdgroup_index_in_threadgroup;
  uint32_t simdgroups_per_threadgroup, threads_per_simdgroup;
  uint32_t thread_index_in_quadgroup, quadgroup_index_in_threadgroup, quadgroups_per_threadgroup;
};

// Mistakes of the running launch, at most 20 of them; the same one of the same place is told once.
void start_report();
void mistake(const std::string& text);
bool told(uint64_t place, uint64_t other);  // whether this pair was seen before; remembers it
const std::vector<std::string>& report();

// What a launch did; bytes are counted by the check variant only.
struct Counts {
  uint64_t device_bytes = 0;       // read and written, every access
  uint64_t touched_bytes = 0;      // of device memory, each element once
  uint64_t threadgroup_bytes = 0;  // read and written
  uint64_t matrix_flop = 0;        // of simdgroup matrices
};
Counts& counts();

void run(const Launch& launch);

}  // namespace msl
