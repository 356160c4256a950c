#include "memory/memory.h"

#include "threads/locks.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <torch/version.h>

#include <cstring>
#include <map>
#include <mutex>

namespace hpu {
namespace {

#if TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= 8
/// PyTorch's interface for allocators of pinned memory, which was added in release 2.8.
struct UncachedAllocator : at::HostAllocator {
  bool record_event(void*, void*, c10::Stream) override {
    return true;  // operations are complete when their calls return
  }
  void empty_cache() override {}  // freed memory is not kept
  at::HostStats get_stats() override {
    refuse_statistics();
  }
  void reset_accumulated_stats() override {
    refuse_statistics();
  }
  void reset_peak_stats() override {
    refuse_statistics();
  }
  [[noreturn]] static void refuse_statistics() {
    C10_THROW_ERROR(
        NotImplementedError,
        "The simulated device does not count pinned memory; torch.hpu.memory_stats() returns the "
        "memory of the card.");
  }
};

void register_allocator(UncachedAllocator* allocator) {
  at::setHostAllocator(kDevice, allocator);
}
#else
using UncachedAllocator = c10::Allocator;

void register_allocator(c10::Allocator*) {}
#endif

struct PinnedAllocator final : UncachedAllocator {
  struct Pin {
    c10::DataPtr host;
    PinnedAllocator* owner;
  };

  c10::DataPtr allocate(size_t bytes) override {
    auto* pin = new Pin{c10::GetCPUAllocator()->allocate(bytes), this};
    void* data = pin->host.get();
    if (data) {
      const std::lock_guard lock(locks::pinned_memory);
      ranges[data] = bytes;
    }
    return {data, pin, &unpin, c10::Device(c10::kCPU)};
  }

  static void unpin(void* context) {
    auto* pin = static_cast<Pin*>(context);
    {
      const std::lock_guard lock(locks::pinned_memory);
      pin->owner->ranges.erase(pin->host.get());
    }
    delete pin;
  }

  bool holds(const void* address) {
    const std::lock_guard lock(locks::pinned_memory);
    auto next = ranges.upper_bound(address);
    if (next == ranges.begin()) {
      return false;
    }
    const auto& [start, bytes] = *--next;
    return address < static_cast<const char*>(start) + bytes;
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }

  std::map<const void*, size_t> ranges;
};

// Leaked on purpose, because static tensors may outlive the static objects in this file.
PinnedAllocator& pinned = *new PinnedAllocator;

[[maybe_unused]] const bool registered = (register_allocator(&pinned), true);

}  // namespace

c10::Allocator* pinned_allocator() {
  return &pinned;
}

bool is_pinned(const void* address) {
  return pinned.holds(address);
}

}  // namespace hpu
