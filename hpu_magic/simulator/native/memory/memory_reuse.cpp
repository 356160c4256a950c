#include "memory/memory_reuse.h"

#include "memory/booking.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>
#include <unordered_map>

namespace hpu {
namespace {

thread_local MemoryReuse* current = nullptr;
thread_local bool keeping = false;
thread_local KernelMemory* kernel = nullptr;
std::atomic<uint64_t> kernels{0};

constexpr size_t kSmallestKept = 64 << 10;  // below, malloc keeps pages itself
constexpr size_t kMostKept = 256 << 20;

/// Memory by size that no tensor uses at the moment. What it lends looks like the host's own
/// memory, an address and a deleter, since kernels may ask an allocator for nothing but that.
class Shelf {
  struct Loan {
    size_t bytes;
    uint64_t owner;  // the kernel that allocated it; 0 for storages
  };

 public:
  explicit Shelf(c10::Allocator* host) : host_(host) {}

  c10::DataPtr lend(size_t bytes, uint64_t owner) {
    std::unique_lock lock(mutex_);
    void* data;
    if (const auto found = free_.find(bytes); found != free_.end()) {
      data = found->second;
      free_.erase(found);
      kept_ -= bytes;
    } else {
      lock.unlock();
      data = host_->raw_allocate(bytes);
      lock.lock();
    }
    lent_.emplace(data, Loan{bytes, owner});
    return {data, data, &give_back, c10::kCPU};
  }

  /// Frees memory, lent or the host's.
  static void give_back(void* data);

  /// Gives back to the host what nobody has borrowed.
  void clear() {
    std::lock_guard lock(mutex_);
    for (const auto& [bytes, data] : free_) {
      host_->raw_deallocate(data);
    }
    free_.clear();
    kept_ = 0;
  }

 private:
  void keep(void* data, size_t bytes) {
    while (kept_ + bytes > kMostKept && !free_.empty()) {
      const auto any = free_.begin();
      kept_ -= any->first;
      host_->raw_deallocate(any->second);
      free_.erase(any);
    }
    if (bytes > kMostKept) {
      host_->raw_deallocate(data);
      return;
    }
    kept_ += bytes;
    free_.emplace(bytes, data);
  }

  c10::Allocator* const host_;
  std::mutex mutex_;
  std::unordered_multimap<size_t, void*> free_;
  std::unordered_map<void*, Loan> lent_;
  size_t kept_ = 0;
};

Shelf& shelf() {
  static auto* const shelf = new Shelf(c10::GetCPUAllocator());  // tensors outlive it all
  return *shelf;
}

void Shelf::give_back(void* data) {
  Shelf& self = shelf();
  std::lock_guard lock(self.mutex_);
  if (const auto found = self.lent_.find(data); found != self.lent_.end()) {
    const Loan loan = found->second;
    self.lent_.erase(found);
    self.keep(data, loan.bytes);
    if (kernel) {
      kernel->free(loan.bytes, loan.owner);
    }
  } else {
    self.host_->raw_deallocate(data);
  }
}

/// PyTorch's CPU allocator, asked after memory that has been used before.
struct ReusingAllocator final : c10::Allocator {
  explicit ReusingAllocator(c10::Allocator* host) : host(host) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (current) {
      if (c10::DataPtr reused = current->take(bytes)) {
        return reused;
      }
    }
    if (keeping && bytes >= kSmallestKept) {
      return shelf().lend(bytes, kernel ? kernel->allocate(bytes) : 0);
    }
    return host->allocate(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &Shelf::give_back;
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    host->copy_data(destination, source, bytes);
  }

  c10::Allocator* const host;
};

/// Puts the allocator into place at the first use: who never uses the device never meets it.
void install() {
  static const bool installed = [] {
    shelf();  // of the allocator that is replaced here
    c10::SetCPUAllocator(new ReusingAllocator(c10::GetCPUAllocator()));
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

MemoryReuse::MemoryReuse(c10::ArrayRef<at::Tensor> outputs) : outputs_(outputs) {
  install();
  for (const at::Tensor& output : outputs_) {
    if (output.defined()) {
      if (c10::DataPtr memory = take_memory(output)) {
        spare_.emplace_back(output.storage().nbytes(), std::move(memory));
      }
    }
  }
  current = this;
}

c10::DataPtr MemoryReuse::take(size_t bytes) {
  for (auto spare = spare_.begin(); spare != spare_.end(); ++spare) {
    if (spare->first == bytes) {
      c10::DataPtr memory = std::move(spare->second);
      spare_.erase(spare);
      return memory;
    }
  }
  return {};
}

MemoryReuse::~MemoryReuse() {
  for (const at::Tensor& output : outputs_) {
    if (output.defined() && output.storage().nbytes() > 0 && !output.storage().data()) {
      give_memory(output, c10::GetCPUAllocator()->allocate(output.storage().nbytes()));
    }
  }
  current = nullptr;
}

KeptMemory::KeptMemory() : outer_(keeping) {
  install();
  keeping = true;
}

KeptMemory::~KeptMemory() {
  keeping = outer_;
}

KernelMemory::KernelMemory(int64_t widening) : outer_(kernel), widening_(widening) {
  kernel = this;
}

KernelMemory::~KernelMemory() {
  kernel = outer_;
}

uint64_t KernelMemory::allocate(size_t bytes) {
  const int64_t counted = static_cast<int64_t>(bytes) / widening_;
  check_room(static_cast<size_t>(counted), unbooked_);
  unbooked_ += counted;
  if (number_ == 0) {
    number_ = ++kernels;
  }
  return number_;
}

void KernelMemory::free(size_t bytes, uint64_t owner) {
  if (owner == number_) {
    unbooked_ -= static_cast<int64_t>(bytes) / widening_;
  }
}

void free_kept_memory() {
  shelf().clear();
}

}  // namespace hpu
