// The card of this process: its capacity, and the counters that other processes can read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace hpu {

/// Counters in the card's shared page, in the same order as in simulator/cards/page.py. Memory
/// sizes are in bytes.
struct Counters {
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> max_in_use{0};
  std::atomic<int64_t> num_allocs{0};
  std::atomic<int64_t> num_frees{0};
  std::atomic<int64_t> max_alloc_size{0};
  std::atomic<int64_t> total_allocs{0};
  std::atomic<int64_t> total_frees{0};
};

/// The result of acquiring a card.
struct Acquisition {
  Counters* counters;
  int64_t capacity;  // bytes
};

namespace card {

/// Sets the function that acquires a card. If the function throws, it is called again when a card
/// is next needed.
void set_driver(std::function<Acquisition()> driver);

/// Sets the function that selects a card by its index before one is acquired. The function throws
/// if this process already uses another card.
void set_chooser(std::function<void(int)> chooser);

/// Handles a device index. The first explicit index that is used before a card is acquired selects
/// the card, which this process then uses as hpu:0. After that, any other index raises an error.
void choose(int index);

/// Acquires a card unless this process already has one. Propagates the driver's errors.
void acquire();
bool acquired();
int64_t capacity();

/// Reserves device memory. Raises the vendor's out-of-memory error if the reservation exceeds the
/// card's capacity.
void reserve(size_t bytes);

/// Raises the out-of-memory error if `bytes` do not fit on the card in addition to the reserved
/// bytes and `unreserved` more bytes.
void check_room(size_t bytes, int64_t unreserved = 0);

/// Frees memory and calls `attempt` again, as the bridge does before it raises an error. Simulated
/// memory is never fragmented, so only cached memory can be freed. Freeing it helps if the host is
/// out of memory, but not if the card is full.
bool defragment(const std::function<bool()>& attempt);

/// Raises an out-of-memory error that explains that the host, not the card, is out of memory.
[[noreturn]] void host_out_of_memory(size_t bytes);
void release(size_t bytes, uint64_t reservation = 0) noexcept;

const Counters& counters();
void reset_peak();
void reset_accumulated();

}  // namespace card
}  // namespace hpu
