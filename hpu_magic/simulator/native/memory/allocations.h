// The device memory that each line of the user's code reserved. Reservations are recorded only in a
// dry run.
#pragma once

#include "events/events.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace hpu::allocations {

/// The part of a training step that reserves memory.
enum class Phase : uint8_t { forward, backward, optimizer };

/// A reservation that has not been released completely.
struct Reservation {
  uint64_t number;
  events::CallerLines lines;
  Phase phase;
  int64_t bytes;
};

/// A reservation that did not fit on the card.
struct Failure {
  events::CallerLines lines;
  int64_t bytes;
  int64_t in_use;
  int64_t capacity;
};

struct Peak {
  int64_t bytes = 0;
  std::vector<Reservation> reservations;
};

/// Starts to record. Earlier reservations are not included.
void record();

/// Sets whether an optimizer is running. Other reservations are assigned to the forward or the
/// backward pass.
void set_optimizing(bool on);

/// Records a reservation of device memory by this thread.
void add(size_t bytes);

/// Returns the number of this thread's last reservation.
uint64_t latest();

/// Records that bytes of a reservation were released.
void remove(uint64_t reservation, size_t bytes) noexcept;

/// Records that a reservation did not fit.
void fail(size_t bytes, int64_t in_use, int64_t capacity);

/// Returns the reservations at the time of the highest memory use.
Peak peak();

/// Returns the memory in use after each reservation or release since the last call to this function,
/// at most `most` values. If there are more, each value is the maximum of the same number of them.
std::vector<int64_t> course(size_t most);

/// Returns the last failure.
std::optional<Failure> last_failure();

/// Returns the number of reservations and the number of bytes reserved so far.
std::pair<uint64_t, uint64_t> totals();

}  // namespace hpu::allocations
