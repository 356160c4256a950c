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

/// For the handler of an error that means something where it is caught. Python's kernels may end in
/// an interrupt or an exit instead, which says nothing of them: throws that on. Of Python's other
/// errors nothing is left behind on the thread.
void rethrow_interrupt();

}  // namespace hpu
