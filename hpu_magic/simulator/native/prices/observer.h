// Observes the operators that run on the device, and launches them on the clock.
#pragma once

#include "prices/sequence.h"

namespace hpu::prices {

/// Starts or stops observing operators in all threads.
void observe(bool on);

/// Ignores the operators that run on this thread during the scope's lifetime.
class Unobserved {
 public:
  Unobserved();
  ~Unobserved();
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  const bool before_;
};

/// Collects the operators of all threads from now on, because lazy mode runs them as graphs.
void collect_all();

/// Returns the operators that were collected in all threads since the last call.
Sequence take_collected();

/// Collects the operators that run on this thread during the scope's lifetime, if the clock runs.
class Collected {
 public:
  Collected();
  ~Collected();
  Collected(const Collected&) = delete;
  Collected& operator=(const Collected&) = delete;

  /// Ends the collection and launches the operators as one graph.
  void launch();

 private:
  Sequence sequence_;
  Sequence* outer_;
  bool active_;
};

}  // namespace hpu::prices
