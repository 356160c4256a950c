#include "memory/card.h"

#include "events/events.h"
#include "memory/allocations.h"
#include "memory/memory_reuse.h"
#include "threads/locks.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <cstdlib>
#include <new>
#include <string>

namespace hpu::card {
namespace {

std::function<Acquisition()> driver;
std::function<void(int)> chooser;
std::atomic<int> chosen{0};
Counters unowned;  // used instead of the shared page while this process has no card
std::atomic<Counters*> page{&unowned};
std::atomic<int64_t> limit{0};
std::atomic<bool> owned{false};

// A forked child inherits the mapping but not the card, so it must not write the owner's counters.
void disown() {
  new (&unowned) Counters();
  page.store(&unowned);
  owned.store(false);
  chosen.store(0);
}

const bool fork_handler = locks::reset_in_child(locks::ForkedState::card, &disown);

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

std::string allocation_failed(size_t bytes) {
  const char* rank = std::getenv("RANK");
  return c10::str(
      "[Rank:", rank ? rank : "0", "] FATAL ERROR :: MODULE:PT_DEVMEM Allocation failed for size::",
      bytes, " (", static_cast<double>(bytes) / (1 << 20), ")MB");
}

/// Reserves device memory. Returns false if the reservation would exceed the capacity.
bool try_reserve(size_t bytes) {
  acquire();
  if (bytes == 0) {
    return true;
  }
  Counters& now = *page.load(std::memory_order_relaxed);
  const auto size = static_cast<int64_t>(bytes);
  const int64_t in_use = now.in_use.fetch_add(size, std::memory_order_relaxed) + size;
  if (in_use > limit.load(std::memory_order_relaxed)) {
    now.in_use.fetch_sub(size, std::memory_order_relaxed);
    return false;
  }
  raise_to(now.max_in_use, in_use);
  raise_to(now.max_alloc_size, size);
  now.num_allocs.fetch_add(1, std::memory_order_relaxed);
  now.total_allocs.fetch_add(1, std::memory_order_relaxed);
  return true;
}

}  // namespace

void set_driver(std::function<Acquisition()> function) {
  driver = std::move(function);
}

void set_chooser(std::function<void(int)> function) {
  chooser = std::move(function);
}

void choose(int index) {
  if (index <= 0 || index == chosen.load(std::memory_order_relaxed)) {
    return;
  }
  TORCH_CHECK(chooser, "habana active device: 0 != ", index, ".");
  locks::check_may_take_gil();
  chooser(index);
  chosen.store(index);
}

void acquire() {
  if (owned.load(std::memory_order_acquire)) {
    return;
  }
  TORCH_CHECK(driver, "synStatus=8 [Device not found] Device acquire failed.");
  locks::check_may_take_gil();
  const Acquisition card = driver();  // idempotent, and serialized by the driver
  page.store(card.counters);
  limit.store(card.capacity);
  if (!owned.exchange(true, std::memory_order_acq_rel)) {
    events::emit(events::Kind::device_acquired, "hpu:0");
  }
}

bool acquired() {
  return owned.load(std::memory_order_acquire);
}

int64_t capacity() {
  return limit.load();
}

namespace {

/// Raises the vendor's out-of-memory error.
[[noreturn]] void raise_full(size_t bytes) {
  allocations::fail(bytes, page.load()->in_use.load(), limit.load());
  TORCH_CHECK(false, allocation_failed(bytes));
}

}  // namespace

void reserve(size_t bytes) {
  if (!try_reserve(bytes) && !defragment([bytes] { return try_reserve(bytes); })) {
    raise_full(bytes);
  }
  allocations::add(bytes);
}

void check_room(size_t bytes, int64_t unreserved) {
  acquire();
  const auto has_room = [needed = unreserved + static_cast<int64_t>(bytes)] {
    const int64_t in_use =
        page.load(std::memory_order_relaxed)->in_use.load(std::memory_order_relaxed);
    return in_use + needed <= limit.load(std::memory_order_relaxed);
  };
  if (!has_room() && !defragment(has_room)) {
    raise_full(static_cast<size_t>(unreserved) + bytes);
  }
}

bool defragment(const std::function<bool()>& attempt) {
  const auto start = std::chrono::steady_clock::now();
  free_cached_memory();
  const bool successful = attempt();
  const std::chrono::nanoseconds duration = std::chrono::steady_clock::now() - start;
  events::emit(
      events::Kind::memory_defragmentation, successful ? "successful" : "failed",
      duration.count());
  return successful;
}

void host_out_of_memory(size_t bytes) {
  TORCH_CHECK(
      false, allocation_failed(bytes),
      ". The simulated card has enough memory, but this machine does not: close other programs, use "
      "a smaller model or batch, or set HPU_MAGIC_MEMORY to a smaller size.");
}

void release(size_t bytes, uint64_t reservation) noexcept {
  if (bytes == 0) {
    return;
  }
  allocations::remove(reservation, bytes);
  Counters& now = *page.load(std::memory_order_relaxed);
  const auto size = static_cast<int64_t>(bytes);
  const int64_t in_use = now.in_use.fetch_sub(size, std::memory_order_relaxed) - size;
  raise_to(now.max_in_use, in_use);
  now.num_frees.fetch_add(1, std::memory_order_relaxed);
  now.total_frees.fetch_add(1, std::memory_order_relaxed);
}

const Counters& counters() {
  return *page.load();
}

// As on a card, the peak is 0 until the next allocation or free.
void reset_peak() {
  page.load()->max_in_use.store(0);
}

void reset_accumulated() {
  Counters& now = *page.load();
  now.num_allocs.store(0);
  now.num_frees.store(0);
  now.max_alloc_size.store(0);
  now.max_in_use.store(now.in_use.load());
}

}  // namespace hpu::card
