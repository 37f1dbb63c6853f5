// Reports the progress of a long coding to a function from time to time. The function may throw to
// stop the coding.
#pragma once

#include <cstdint>
#include <functional>

namespace lattice::cpu {

class Meter {
 public:
  using Tell = std::function<void(double)>;  // of the share that is done, 0..1

  Meter() = default;
  // This part of the work covers the shares `from` to `to` of all work. The function must outlive
  // the meter: it may be Python's, which must not be copied without Python's lock.
  Meter(const Tell& tell, double from, double to)
      : tell_(tell ? &tell : nullptr), from_(from), to_(to) {}

  // Called for every item. Most calls cost one comparison, because nothing is reported.
  template <typename Share>
  void next(const Share& share) {
    if (--left_ > 0) return;
    left_ = kEvery;
    if (tell_ != nullptr) (*tell_)(from_ + (to_ - from_) * share());
  }

 private:
  static constexpr int kEvery = 1 << 14;  // items, about 0.05 s
  const Tell* tell_ = nullptr;
  double from_ = 0, to_ = 1;
  int left_ = kEvery;
};

}  // namespace lattice::cpu
