// Checks of every access of a kernel: races, bounds, reads of what was never written, outputs that
// are never written.
//
// Only the check variant does them: its kernels are instrumented as for ThreadSanitizer, whose
// callbacks are ours. Two accesses race when one writes, they are not both atomic, and no barrier
// of the right memory lies between them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "launch.h"

namespace msl {

void start_check(const Launch& launch);
void check_access(size_t address, uint32_t size, bool writes, bool atomic, size_t code);
void finish_check(const Launch& launch);

}  // namespace msl
