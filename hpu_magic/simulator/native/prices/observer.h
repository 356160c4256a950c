// Observes the operators that run on the device, and launches them on the clock.
#pragma once

#include "prices/sequence.h"

#include <ATen/record_function.h>

#include <optional>

namespace hpu::prices {

/// Starts or stops observing operators in all threads.
void observe(bool on);

/// While an instance exists, operators on this thread are not observed, and the time that they take
/// on this machine is not part of the host's time.
class Unobserved {
 public:
  Unobserved();
  ~Unobserved();
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  const bool before_;
  const bool timed_;
  std::optional<at::RecordFunctionGuard> unseen_;
};

/// Collects the operators of all threads from now on, because lazy mode runs them as graphs.
void collect_all();

/// Returns the operators that were collected in all threads since the last call.
Sequence take_collected();

/// While an instance exists and the clock runs, collects the operators on this thread. `run`
/// identifies runs with equal operators, of which only the first one is collected.
class Collected {
 public:
  explicit Collected(std::optional<uint64_t> run);
  ~Collected();
  Collected(const Collected&) = delete;
  Collected& operator=(const Collected&) = delete;

  /// Ends the collection and launches the operators as one graph.
  void launch();

 private:
  void end();

  Sequence sequence_;
  Sequence* outer_;
  const std::optional<uint64_t> run_;
  const uint64_t uses_;
  bool active_;
  std::optional<Unobserved> known_;  // if the price of the run is known
};

}  // namespace hpu::prices
