// The card of this process: its capacity, and counters that other processes read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace hpu {

/// Counters of the card's shared page, in the order of simulator/cards/page.py. Bytes and counts.
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

/// Sets the function that acquires a card. If it throws, it is called again at the next use.
void set_driver(std::function<Acquisition()> driver);

/// Sets the function that selects a card by its index before one is acquired. It throws if this
/// process uses another card.
void set_chooser(std::function<void(int)> chooser);

/// Handles the index of a device. The first explicit index before a card is acquired selects the
/// card, which the process sees as hpu:0. Later, only the same index is valid; others raise an
/// error.
void choose(int index);

/// Acquires a card unless this process has one. Propagates errors of the driver.
void acquire();
bool acquired();
int64_t capacity();

/// Books `bytes` as in use; returns false if they exceed the capacity.
bool book(size_t bytes);
/// Whether `book` would succeed; books nothing.
bool has_room(int64_t bytes);
/// Raises the vendor's error for bytes that `book` refused.
[[noreturn]] void out_of_memory(size_t bytes);
/// The same if the card has enough memory, but the host has not.
[[noreturn]] void host_out_of_memory(size_t bytes);
void release(size_t bytes) noexcept;

const Counters& counters();
void reset_peak();
void reset_accumulated();

}  // namespace card
}  // namespace hpu
