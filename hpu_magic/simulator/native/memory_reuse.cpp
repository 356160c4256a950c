#include "memory_reuse.h"

#include <c10/core/CPUAllocator.h>

namespace hpu {
namespace {

thread_local MemoryReuse* current = nullptr;

/// PyTorch's CPU allocator, asked after the memory that is being reused. What it hands out is
/// always that allocator's own, to be freed in its own way.
struct ReusingAllocator final : c10::Allocator {
  explicit ReusingAllocator(c10::Allocator* host) : host(host) {}

  c10::DataPtr allocate(size_t bytes) override {
    if (current) {
      if (c10::DataPtr reused = current->take(bytes)) {
        return reused;
      }
    }
    return host->allocate(bytes);
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return host->raw_deleter();
  }

  bool is_simple_data_ptr(const c10::DataPtr& data) const override {
    return host->is_simple_data_ptr(data);
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    host->copy_data(destination, source, bytes);
  }

  c10::Allocator* const host;
};

/// Puts the allocator into place at the first use: who never replays never meets it.
void install() {
  static const bool installed = [] {
    c10::SetCPUAllocator(new ReusingAllocator(c10::GetCPUAllocator()));  // tensors outlive it all
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

}  // namespace hpu
