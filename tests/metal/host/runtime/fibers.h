// Threads of a threadgroup as fibers: each has a stack, one of them runs, and it says itself when
// another may.
#pragma once

#include <cstddef>
#include <cstdint>

#include "launch.h"

namespace msl {

enum class State : uint8_t { ready, at_threadgroup_barrier, in_simdgroup, done };

struct Fiber {
  void* stack_pointer = nullptr;
  uint8_t* stack = nullptr;
  void* sanitizer = nullptr;  // AddressSanitizer's own stack of this fiber
  State state = State::done;
  uint32_t site = 0, flags = 0, size = 0;            // of the rendezvous it waits at
  uint32_t mask = 0;                                 // lanes that took part in the last one
  uint32_t device_epoch = 0, threadgroup_epoch = 0;  // barriers of its simdgroup that it passed
  Place place = {};
};

constexpr size_t kStackBytes = 256 * 1024;

// Fiber i; memory comes with the first use.
Fiber& fiber(uint32_t i);
uint32_t current();
// Makes fiber i run entry(buffers, its place) when it is resumed.
void prepare(uint32_t i, Entry entry, size_t buffers);
void resume(uint32_t i);
// Back to whoever resumed this fiber.
void pause();

}  // namespace msl
