#pragma once

#include <chrono>

namespace hpu {

/// Lets Ctrl-C end long work that runs without Python.
class Interruption {
 public:
  /// Asks Python for pending signals, at most ten times a second.
  /// Throws what their handlers raise, KeyboardInterrupt as a rule.
  void check();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point asked_ = Clock::now();
};

}  // namespace hpu
