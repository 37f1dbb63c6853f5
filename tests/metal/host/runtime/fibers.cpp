#include "fibers.h"

#include <sys/mman.h>

#include <cstdlib>
#include <deque>

#if __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#define MSL_ASAN(x) x
#else
#define MSL_ASAN(x)
#endif

// Saves the registers a callee keeps, changes the stack.
extern "C" void msl_switch(void** from, void* to);
asm(R"(
.text
.globl msl_switch
.type msl_switch,@function
msl_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp,(%rdi)
  movq %rsi,%rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

namespace msl {
namespace {

std::deque<Fiber> fibers;
uint32_t running = 0;
void* scheduler = nullptr;
Entry entry_of_all = nullptr;
size_t buffers_of_all = 0;
MSL_ASAN(void* scheduler_sanitizer = nullptr; const void* scheduler_bottom = nullptr;
         size_t scheduler_size = 0;)

void body() {
  MSL_ASAN(__sanitizer_finish_switch_fiber(nullptr, &scheduler_bottom, &scheduler_size);)
  entry_of_all(buffers_of_all, reinterpret_cast<size_t>(&fibers[running].place));
  fibers[running].state = State::done;
  pause();
  std::abort();
}

}  // namespace

Fiber& fiber(uint32_t i) {
  while (fibers.size() <= i) {
    fibers.emplace_back();
    constexpr size_t kGuard = 4096;
    void* memory = mmap(nullptr, kStackBytes + kGuard, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) std::abort();
    mprotect(memory, kGuard, PROT_NONE);
    fibers.back().stack = static_cast<uint8_t*>(memory) + kGuard;
  }
  return fibers[i];
}

uint32_t current() { return running; }

void prepare(uint32_t i, Entry entry, size_t buffers) {
  entry_of_all = entry;
  buffers_of_all = buffers;
  Fiber& f = fiber(i);
  // A new thread: what the last one left on this stack is gone.
  MSL_ASAN(__asan_unpoison_memory_region(f.stack, kStackBytes);)
  auto* top = reinterpret_cast<size_t*>(f.stack + kStackBytes);
  *--top = 0;  // the address body() would return to; keeps the stack aligned
  *--top = reinterpret_cast<size_t>(&body);
  for (int r = 0; r < 6; ++r) *--top = 0;
  f.stack_pointer = top;
  f.state = State::ready;
}

void resume(uint32_t i) {
  running = i;
  MSL_ASAN(__sanitizer_start_switch_fiber(&scheduler_sanitizer, fibers[i].stack, kStackBytes);)
  msl_switch(&scheduler, fibers[i].stack_pointer);
  MSL_ASAN(__sanitizer_finish_switch_fiber(scheduler_sanitizer, nullptr, nullptr);)
}

void pause() {
  Fiber& f = fibers[running];
  MSL_ASAN(__sanitizer_start_switch_fiber(f.state == State::done ? nullptr : &f.sanitizer,
                                          scheduler_bottom, scheduler_size);)
  msl_switch(&f.stack_pointer, scheduler);
  MSL_ASAN(__sanitizer_finish_switch_fiber(fibers[running].sanitizer, &scheduler_bottom,
                                           &scheduler_size);)
}

}  // namespace msl
