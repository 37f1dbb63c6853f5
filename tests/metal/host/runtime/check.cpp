#include "check.h"

#include <cstring>

#include "fibers.h"
#include "group.h"

namespace msl {

#ifndef MSL_CHECK

void start_check(const Launch&) {}
void check_access(size_t, uint32_t, bool, bool, size_t) {}
void finish_check(const Launch&) {}

}  // namespace msl

#else

namespace {

struct Access {
  int64_t group = -1;  // -1: none
  uint32_t thread = 0, epoch = 0, simdgroup_epoch = 0;
  bool atomic = false;
  size_t code = 0;
};
struct Cell {
  Access write, reads[2];
  int64_t written = -1;  // by which group
};
struct Shadow {
  Buffer buffer;
  std::vector<Cell> cells;    // of writable buffers
  std::vector<bool> touched;  // of device buffers
};

const Launch* the_launch = nullptr;
std::vector<Shadow> shadows;

bool ordered(const Access& before, const Access& now, bool threadgroup) {
  if (before.group < 0 || (before.atomic && now.atomic)) return true;
  if (before.group != now.group) return threadgroup;  // each group has its own memory
  if (before.thread == now.thread || before.epoch < now.epoch) return true;
  return before.thread / 32 == now.thread / 32 && before.simdgroup_epoch < now.simdgroup_epoch;
}

std::string hex(
    size_t code) {  // the place in the kernel's file; host/symbols.py turns it into a line
  char text[32];
  std::snprintf(text, sizeof text, "@0x%zx", code - the_launch->base);
  return text;
}

std::string element(const Shadow& s, size_t cell) {
  return std::string(s.buffer.threadgroup ? "threadgroup " : "device ") + s.buffer.name +
         (s.buffer.threadgroup ? ", byte " : ", element ") + std::to_string(cell);
}

void check_race(const Shadow& s, size_t cell, const Access& before, const Access& now,
                const char* kind) {
  if (ordered(before, now, s.buffer.threadgroup) || told(before.code, now.code)) return;
  mistake("race: " + std::string(kind) + " of " + element(s, cell) + ": " +
          thread_name(now.thread) + " at " + hex(now.code) + " and thread " +
          std::to_string(before.thread) +
          (before.group == now.group ? " of the same group"
                                     : " of group number " + std::to_string(before.group)) +
          " at " + hex(before.code));
}

void count(Shadow& s, size_t offset, uint32_t size) {
  if (s.buffer.threadgroup) {
    counts().threadgroup_bytes += size;
    return;
  }
  counts().device_bytes += size;
  for (size_t c = offset / s.buffer.item; c <= (offset + size - 1) / s.buffer.item; ++c) {
    if (s.touched[c]) continue;
    s.touched[c] = true;
    counts().touched_bytes += s.buffer.item;
  }
}

void visit(Shadow& s, size_t offset, uint32_t size, bool writes, const Access& now) {
  count(s, offset, size);
  if (writes && !s.buffer.writable && !told(now.code, 1))
    mistake("write to input " + s.buffer.name + " by " + thread_name(now.thread) + " at " +
            hex(now.code));
  if (!s.buffer.writable) return;
  const size_t last = (offset + size - 1) / s.buffer.item;
  for (size_t c = offset / s.buffer.item; c <= last; ++c) {
    Cell& cell = s.cells[c];
    const bool known =
        s.buffer.filled || (s.buffer.threadgroup ? cell.written == now.group : cell.written >= 0);
    if (!writes && !known && !told(now.code, 2))
      mistake("uninitialized read of " + element(s, c) + " by " + thread_name(now.thread) + " at " +
              hex(now.code));
    check_race(s, c, cell.write, now, writes ? "two writes" : "write, then read");
    if (writes) {
      for (const Access& read : cell.reads) check_race(s, c, read, now, "read, then write");
      cell.write = now;
      cell.reads[0] = cell.reads[1] = {};
      cell.written = now.group;
    } else {
      Access* slot = &cell.reads[0];
      const bool same = slot->group == now.group && slot->thread == now.thread;
      if (!same && !ordered(*slot, now, s.buffer.threadgroup)) slot = &cell.reads[1];
      *slot = now;
    }
  }
}

void out_of_bounds(size_t address, uint32_t size, bool writes, size_t code) {
  const Buffer* nearest = nullptr;
  size_t distance = ~size_t{0};
  for (const Shadow& s : shadows) {
    const size_t start = reinterpret_cast<size_t>(s.buffer.data), end = start + s.buffer.bytes;
    const size_t d = address < start ? start - address : address < end ? 0 : address - end;
    if (d < distance) distance = d, nearest = &s.buffer;
  }
  const bool before = nearest && address < reinterpret_cast<size_t>(nearest->data);
  mistake("out of bounds: " + std::string(writes ? "write" : "read") + " of " +
          std::to_string(size) + " bytes, " + std::to_string(distance) + " bytes " +
          (before ? "before " : "past the end of ") + (nearest ? nearest->name : "all buffers") +
          ", by " + thread_name(current()) + " at " + hex(code));
  group().stopped = true;
  pause();
}

void check_aligned(const void* address, uint32_t size, size_t code) {
  if (reinterpret_cast<size_t>(address) % size && !told(code, 3))
    mistake("misaligned access of " + std::to_string(size) + " bytes by " + thread_name(current()) +
            " at " + hex(code));
}

}  // namespace

void start_check(const Launch& launch) {
  the_launch = &launch;
  shadows.clear();
  for (const auto* list : {&launch.buffers, &launch.threadgroup})
    for (const Buffer& buffer : *list) {
      const size_t n = (buffer.bytes + buffer.item - 1) / buffer.item;
      shadows.push_back({buffer, std::vector<Cell>(buffer.writable ? n : 0),
                         std::vector<bool>(buffer.threadgroup ? 0 : n)});
    }
}

void check_access(size_t address, uint32_t size, bool writes, bool atomic, size_t code) {
  const Fiber& f = fiber(current());
  if (address - reinterpret_cast<size_t>(f.stack) < kStackBytes) return;
  for (Shadow& s : shadows) {
    const size_t offset = address - reinterpret_cast<size_t>(s.buffer.data);
    if (offset >= s.buffer.bytes) continue;
    if (offset + size > s.buffer.bytes) return out_of_bounds(address, size, writes, code);
    const bool tg = s.buffer.threadgroup;
    return visit(s, offset, size, writes,
                 {group().number, current(), tg ? group().threadgroup_epoch : group().device_epoch,
                  tg ? f.threadgroup_epoch : f.device_epoch, atomic, code});
  }
  if (!writes && address >= the_launch->base && address < the_launch->end)
    return;  // constants of the kernel
  out_of_bounds(address, size, writes, code);
}

void finish_check(const Launch&) {
  for (const Shadow& s : shadows) {
    if (!s.buffer.writable || s.buffer.filled || s.buffer.threadgroup) continue;
    size_t missing = 0, first = 0;
    for (size_t c = 0; c < s.cells.size(); ++c)
      if (s.cells[c].written < 0 && missing++ == 0) first = c;
    if (missing)
      mistake("unwritten output: " + std::to_string(missing) + " of " +
              std::to_string(s.cells.size()) + " elements of " + s.buffer.name + ", the first is " +
              std::to_string(first) + "; there is no init_value");
  }
}

}  // namespace msl

using msl::check_access;
#define MSL_CODE reinterpret_cast<size_t>(__builtin_return_address(0))
#define MSL_ACCESS(n)                                                     \
  void __tsan_read##n(void* a) {                                          \
    msl::check_aligned(a, n, MSL_CODE);                                   \
    check_access(reinterpret_cast<size_t>(a), n, false, false, MSL_CODE); \
  }                                                                       \
  void __tsan_write##n(void* a) {                                         \
    msl::check_aligned(a, n, MSL_CODE);                                   \
    check_access(reinterpret_cast<size_t>(a), n, true, false, MSL_CODE);  \
  }                                                                       \
  void __tsan_unaligned_read##n(void* a) {                                \
    check_access(reinterpret_cast<size_t>(a), n, false, false, MSL_CODE); \
  }                                                                       \
  void __tsan_unaligned_write##n(void* a) {                               \
    check_access(reinterpret_cast<size_t>(a), n, true, false, MSL_CODE);  \
  }

extern "C" {
MSL_ACCESS(1)
MSL_ACCESS(2)
MSL_ACCESS(4)
MSL_ACCESS(8)
MSL_ACCESS(16)
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void* __tsan_memcpy(void* to, const void* from, size_t n) {
  if (n) check_access(reinterpret_cast<size_t>(from), n, false, false, MSL_CODE);
  if (n) check_access(reinterpret_cast<size_t>(to), n, true, false, MSL_CODE);
  return std::memcpy(to, from, n);
}
void* __tsan_memmove(void* to, const void* from, size_t n) {
  if (n) check_access(reinterpret_cast<size_t>(from), n, false, false, MSL_CODE);
  if (n) check_access(reinterpret_cast<size_t>(to), n, true, false, MSL_CODE);
  return std::memmove(to, from, n);
}
void* __tsan_memset(void* to, int value, size_t n) {
  if (n) check_access(reinterpret_cast<size_t>(to), n, true, false, MSL_CODE);
  return std::memset(to, value, n);
}
}
#endif
