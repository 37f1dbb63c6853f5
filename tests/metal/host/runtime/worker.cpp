// A process that runs kernels: one launch after the other, told line by line on standard input.
//
//   memory BYTES            the shared memory has this size; its descriptor is the argument
//   kernel FILE
//   grid X Y Z | group X Y Z | order N | seed N | fails N | layout N | last N
//   threadgroup NAME OFFSET BYTES
//                           a variable of the kernel, at OFFSET of its file
//   buffer NAME OFFSET BYTES ITEM WRITABLE FILLED
//                           an argument, at OFFSET of the shared memory
//   run                     answers with the mistakes, one per line, then "done" and the counts
#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <set>
#include <sstream>

#include "launch.h"

#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#endif

namespace msl {
namespace {

constexpr size_t kReported = 20;
int descriptor = -1;  // of the shared memory
uint8_t* memory = nullptr;
size_t memory_bytes = 0;
std::vector<std::string> mistakes;
Counts the_counts;
std::set<std::pair<uint64_t, uint64_t>> told_before;

struct Kernel {
  Entry entry;
  size_t base, end;
};

int find_end(dl_phdr_info* info, size_t, void* kernel) {
  auto* k = static_cast<Kernel*>(kernel);
  if (info->dlpi_addr != k->base) return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i)
    if (info->dlpi_phdr[i].p_type == PT_LOAD)
      k->end = std::max<size_t>(k->end,
                                k->base + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
  return 1;
}

const Kernel& load(const std::string& file) {
  static std::map<std::string, Kernel> loaded;
  const auto found = loaded.find(file);
  if (found != loaded.end()) return found->second;
  void* handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    std::cerr << dlerror() << std::endl;
    std::exit(9);
  }
  link_map* map = nullptr;
  dlinfo(handle, RTLD_DI_LINKMAP, &map);
  Kernel kernel{reinterpret_cast<Entry>(dlsym(handle, "msl_entry")), map->l_addr, map->l_addr};
  dl_iterate_phdr(find_end, &kernel);
  return loaded[file] = kernel;
}

void map_memory(size_t bytes) {
  if (memory) munmap(memory, memory_bytes);
  memory_bytes = bytes;
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
  if (at == MAP_FAILED) std::exit(9);
  memory = static_cast<uint8_t*>(at);
}

// AddressSanitizer sees the ends of memory from malloc: there each buffer is a copy. The ends of
// threadgroup variables it is told.
void run_and_answer(Launch& launch) {
  start_report();
#if __has_feature(address_sanitizer)
  constexpr size_t kGuard = 64;  // rewrite.py puts so many bytes behind a variable
  for (const Buffer& variable : launch.threadgroup)
    __asan_poison_memory_region(variable.data + variable.bytes, kGuard - variable.bytes % 8);
  constexpr size_t kFar = size_t{1} << 28;  // larger than memory: far.py
  std::vector<uint8_t*> shared;
  for (Buffer& buffer : launch.buffers) {
    shared.push_back(buffer.data);
    if (buffer.bytes > kFar) continue;
    buffer.data = static_cast<uint8_t*>(std::malloc(buffer.bytes ? buffer.bytes : 1));
    std::memcpy(buffer.data, shared.back(), buffer.bytes);
  }
  run(launch);
  for (size_t i = 0; i < shared.size(); ++i) {
    if (launch.buffers[i].bytes > kFar) continue;
    std::memcpy(shared[i], launch.buffers[i].data, launch.buffers[i].bytes);
    std::free(launch.buffers[i].data);
  }
#else
  run(launch);
#endif
  for (const std::string& text : report()) std::cout << text << "\n";
  const Counts& c = counts();
  std::cout << "done " << c.device_bytes << " " << c.touched_bytes << " " << c.threadgroup_bytes
            << " " << c.matrix_flop << std::endl;
}

void serve() {
  Launch launch;
  std::string line, word;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    words >> word;
    if (word == "memory") {
      size_t bytes = 0;
      words >> bytes;
      map_memory(bytes);
    } else if (word == "kernel") {
      words >> word;
      launch = {};
      const Kernel& kernel = load(word);
      launch.entry = kernel.entry, launch.base = kernel.base, launch.end = kernel.end;
    } else if (word == "grid") {
      words >> launch.grid[0] >> launch.grid[1] >> launch.grid[2];
    } else if (word == "group") {
      words >> launch.group[0] >> launch.group[1] >> launch.group[2];
    } else if (word == "order") {
      int order = 0;
      words >> order;
      launch.order = static_cast<Order>(order);
    } else if (word == "seed") {
      words >> launch.seed;
    } else if (word == "fails") {
      words >> launch.fails;
    } else if (word == "layout") {
      words >> launch.layout;
    } else if (word == "last") {
      words >> launch.last;
    } else if (word == "threadgroup") {
      Buffer b;
      b.writable = b.threadgroup = true;
      b.filled = false;
      size_t offset = 0;
      words >> b.name >> offset >> b.bytes;
      b.data = reinterpret_cast<uint8_t*>(launch.base + offset);
      launch.threadgroup.push_back(b);
    } else if (word == "buffer") {
      Buffer b;
      size_t offset = 0;
      words >> b.name >> offset >> b.bytes >> b.item >> b.writable >> b.filled;
      b.data = memory + offset;
      launch.buffers.push_back(b);
    } else if (word == "run") {
      run_and_answer(launch);
    }
  }
}

}  // namespace

void start_report() {
  mistakes.clear();
  told_before.clear();
  the_counts = {};
}
void mistake(const std::string& text) {
  if (mistakes.size() < kReported) mistakes.push_back(text);
}
bool told(uint64_t place, uint64_t other) { return !told_before.insert({place, other}).second; }
const std::vector<std::string>& report() { return mistakes; }
Counts& counts() { return the_counts; }

}  // namespace msl

int main(int, char** arguments) {
  msl::descriptor = std::atoi(arguments[1]);
  msl::serve();
}
