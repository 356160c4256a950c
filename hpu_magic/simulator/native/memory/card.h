// The card this process owns: its capacity and the counters other processes read.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace hpu {

/// Counters of the card's shared page, in the order of the page (see cards.py). Bytes and counts.
struct Counters {
  std::atomic<int64_t> in_use{0};
  std::atomic<int64_t> max_in_use{0};
  std::atomic<int64_t> num_allocs{0};
  std::atomic<int64_t> num_frees{0};
  std::atomic<int64_t> max_alloc_size{0};
  std::atomic<int64_t> total_allocs{0};
  std::atomic<int64_t> total_frees{0};
};

/// What the driver hands over when a card is acquired.
struct Acquisition {
  Counters* counters;
  int64_t capacity;  // bytes
};

namespace card {

/// Names the function that acquires a card; it may throw, and is asked again at the next use.
void set_driver(std::function<Acquisition()> driver);

/// Names the function that chooses the card by its index before one is acquired. It throws where
/// this process uses another.
void set_chooser(std::function<void(int)> chooser);

/// Takes the index of a device. The first explicit one before a card is acquired selects the card,
/// which the process sees as hpu:0; the same index names that card later. Throws for others.
void choose(int index);

/// Acquires a card unless this process has one. Throws what the driver throws.
void acquire();
bool acquired();
int64_t capacity();

/// Books `bytes` as in use; false where they exceed the capacity.
bool charge(size_t bytes);
/// Whether `charge` would book that much; nothing is booked.
bool has_room(int64_t bytes);
/// Throws the vendor's error for bytes that `charge` refused.
[[noreturn]] void out_of_memory(size_t bytes);
/// The same where the card has room for them, and the machine has not.
[[noreturn]] void host_out_of_memory(size_t bytes);
void release(size_t bytes) noexcept;

const Counters& counters();
void reset_peak();
void reset_accumulated();

}  // namespace card
}  // namespace hpu
