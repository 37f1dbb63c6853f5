// A threadgroup at work: what runs next, who waits for whom.
#pragma once

#include <cstdint>
#include <string>

#include "launch.h"

namespace msl {

// The group that runs, and how many threadgroup barriers its threads have passed, by the memory
// they order.
struct Group {
  uint32_t number = 0, threads = 0;
  uint32_t device_epoch = 1, threadgroup_epoch = 1;
  bool stopped = false;  // after a mistake that cannot be survived
};
Group& group();

// "thread 5 of group (1, 0, 0)" and "line 12", for messages.
std::string thread_name(uint32_t i);
std::string site_name(uint32_t site);

}  // namespace msl
