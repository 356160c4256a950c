#include "memory/memory_reuse.h"

#include "memory/card.h"
#include "threads/locks.h"

#include <c10/core/CPUAllocator.h>

#include <atomic>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace hpu {
namespace {

thread_local MemoryReuse* current = nullptr;
thread_local bool caching = false;
thread_local KernelMemory* kernel = nullptr;
std::atomic<uint64_t> kernels{0};

constexpr size_t kSmallestCached = 64 << 10;  // malloc itself keeps the pages of smaller blocks
constexpr size_t kMostCached = 256 << 20;

/// Caches freed memory by size. Like the host allocator's blocks, a block consists only of an
/// address and a deleter, because kernels may depend on this.
class MemoryCache {
  struct Loan {
    size_t bytes;
    uint64_t owner;  // the kernel that allocated it; 0 for storages
  };

 public:
  explicit MemoryCache(c10::Allocator* host) : host_(host) {}

  c10::DataPtr lend(size_t bytes, uint64_t owner) {
    std::unique_lock lock(locks::cached_memory);
    void* data;
    if (const auto found = free_.find(bytes); found != free_.end()) {
      data = found->second;
      free_.erase(found);
      kept_ -= bytes;
    } else {
      lock.unlock();
      data = from_host(bytes);
      lock.lock();
    }
    lent_.emplace(data, Loan{bytes, owner});
    return {data, data, &give_back, c10::kCPU};
  }

  /// Lends the memory of a tensor to a kernel. When the kernel frees this memory, nothing happens.
  c10::DataPtr lend_in_use(void* data) {
    const std::lock_guard lock(locks::cached_memory);
    in_use_.insert(data);
    return {data, data, &give_back, c10::kCPU};
  }

  /// Ends the loan of a tensor's memory.
  void reclaim(void* data) {
    const std::lock_guard lock(locks::cached_memory);
    in_use_.erase(data);
  }

  /// Frees memory that was lent by this cache or allocated by the host allocator.
  static void give_back(void* data);

  /// Frees all cached memory.
  void clear() {
    const std::lock_guard lock(locks::cached_memory);
    for (const auto& [bytes, data] : free_) {
      host_->raw_deallocate(data);
    }
    free_.clear();
    kept_ = 0;
  }

 private:
  void* from_host(size_t bytes) {
    try {
      return host_->raw_allocate(bytes);
    } catch (const c10::Error&) {
      card::host_out_of_memory(bytes);
    }
  }

  void keep(void* data, size_t bytes) {
    while (kept_ + bytes > kMostCached && !free_.empty()) {
      const auto any = free_.begin();
      kept_ -= any->first;
      host_->raw_deallocate(any->second);
      free_.erase(any);
    }
    if (bytes > kMostCached) {
      host_->raw_deallocate(data);
      return;
    }
    kept_ += bytes;
    free_.emplace(bytes, data);
  }

  c10::Allocator* const host_;
  std::unordered_multimap<size_t, void*> free_;
  std::unordered_map<void*, Loan> lent_;
  std::unordered_set<void*> in_use_;  // memory that belongs to tensors and is lent to kernels
  size_t kept_ = 0;
};

MemoryCache& memory_cache() {
  // Leaked on purpose, because tensors may live until the process ends.
  static auto* const memory_cache = new MemoryCache(c10::GetCPUAllocator());
  return *memory_cache;
}

void MemoryCache::give_back(void* data) {
  MemoryCache& self = memory_cache();
  const std::lock_guard lock(locks::cached_memory);
  if (self.in_use_.count(data) > 0) {
    return;
  }
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

/// Wraps PyTorch's CPU allocator and reuses memory.
struct ReusingAllocator final : c10::Allocator {
  explicit ReusingAllocator(c10::Allocator* host) : host(host) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (current) {
      if (void* reused = current->borrow(bytes)) {
        return memory_cache().lend_in_use(reused);
      }
    }
    if (caching && bytes >= kSmallestCached) {
      return memory_cache().lend(bytes, kernel ? kernel->allocate(bytes) : 0);
    }
    return host->allocate(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return &MemoryCache::give_back;
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    host->copy_data(destination, source, bytes);
  }

  c10::Allocator* const host;
};

/// Installs the allocator on first use.
void install() {
  static const bool installed = [] {
    memory_cache();  // the cache keeps a pointer to the allocator that is replaced below
    c10::SetCPUAllocator(new ReusingAllocator(c10::GetCPUAllocator()));
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace

MemoryReuse::MemoryReuse(c10::ArrayRef<at::Tensor> outputs) : outer_(current) {
  install();
  for (const at::Tensor& output : outputs) {
    if (output.defined() && has_memory(output.storage()) && output.storage().nbytes() > 0) {
      spare_.emplace_back(output.storage().nbytes(), output.storage().mutable_data());
    }
  }
  current = this;
}

void* MemoryReuse::borrow(size_t bytes) {
  for (auto spare = spare_.begin(); spare != spare_.end(); ++spare) {
    if (spare->first == bytes) {
      void* data = spare->second;
      spare_.erase(spare);
      borrowed_.push_back(data);
      return data;
    }
  }
  return nullptr;
}

void MemoryReuse::stop() {
  current = nullptr;
}

MemoryReuse::~MemoryReuse() {
  for (void* data : borrowed_) {
    memory_cache().reclaim(data);
  }
  current = outer_;
}

CachedMemory::CachedMemory() : outer_(caching) {
  install();
  caching = true;
}

CachedMemory::~CachedMemory() {
  caching = outer_;
}

KernelMemory::KernelMemory(int64_t widening) : outer_(kernel), widening_(widening) {
  kernel = this;
}

KernelMemory::~KernelMemory() {
  kernel = outer_;
}

uint64_t KernelMemory::allocate(size_t bytes) {
  const int64_t counted = static_cast<int64_t>(bytes) / widening_;
  card::check_room(static_cast<size_t>(counted), unreserved_);
  unreserved_ += counted;
  if (number_ == 0) {
    number_ = ++kernels;
  }
  return number_;
}

void KernelMemory::free(size_t bytes, uint64_t owner) {
  if (owner == number_) {
    unreserved_ -= static_cast<int64_t>(bytes) / widening_;
  }
}

void free_cached_memory() {
  memory_cache().clear();
}

}  // namespace hpu
