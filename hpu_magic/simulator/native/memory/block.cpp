#include "memory/block.h"

#include "memory/card.h"
#include "memory/card_types.h"
#include "memory/memory.h"
#include "memory/memory_reuse.h"
#include "memory/skipping.h"
#include "memory/zero_pages.h"

#include <ATen/native/Resize.h>
#include <c10/core/CPUAllocator.h>
#include <c10/util/Exception.h>

#include <cstring>
#include <utility>

namespace hpu {
namespace {

/// The size from which tensors use no host memory in a dry run.
constexpr size_t kUnused = size_t{64} << 10;

/// Allocates host memory. Returns null if the host is out of memory.
c10::DataPtr host_memory(size_t bytes) {
  if (bytes >= kLazyPages || (bytes >= kUnused && skipping::dry_run())) {
    return lazy_pages(bytes);
  }
  c10::DataPtr memory;
  if (!has_memory(bytes)) {
    return memory;
  }
  const CachedMemory kept;
  const auto attempt = [bytes, &memory] {
    try {
      memory = c10::GetCPUAllocator()->allocate(bytes);
      return true;
    } catch (const c10::Error&) {
      return false;
    }
  };
  if (!attempt()) {
    card::defragment(attempt);
  }
  return memory;
}

struct DeviceAllocator final : c10::Allocator {
  explicit DeviceAllocator(bool narrow) : narrow(narrow) {}

  c10::DataPtr allocate(size_t bytes) override {
    // Reserve device memory before allocating host memory, so that a full card does not fill the
    // host's memory.
    card::reserve(device_bytes(bytes, narrow));
    c10::DataPtr host = host_memory(bytes);
    void* data = host.get();
    if (!data && bytes > 0) {
      card::release(device_bytes(bytes, narrow));
      card::host_out_of_memory(device_bytes(bytes, narrow));
    }
    auto twin = make_storage(bytes, std::move(host), c10::GetCPUAllocator());
    return {data, new Block{std::move(twin), bytes, narrow}, &free_block, device()};
  }

  c10::DeleterFnPtr raw_deleter() const override {
    return nullptr;  // a block is freed through its context, not through its address
  }

  void copy_data(void* destination, const void* source, size_t bytes) const override {
    std::memcpy(destination, source, bytes);
  }

  const bool narrow;  // whether it serves dtypes that the card stores at half their size
};

// Leaked on purpose, because static tensors may outlive the static objects in this file.
DeviceAllocator& bytes_allocator = *new DeviceAllocator(false);
DeviceAllocator& allocator = *new DeviceAllocator(false);
DeviceAllocator& narrow_allocator = *new DeviceAllocator(true);

/// Allocates memory for a storage that has none yet.
void materialize(const c10::Storage& storage) {
  const size_t bytes = storage.nbytes();
  c10::DataPtr memory = storage.allocator()->allocate(bytes);
  auto* fresh = memory.cast_context<Block>(&free_block);
  rebind(storage, std::exchange(fresh->twin, nullptr), std::exchange(fresh->bytes, 0));
}

}  // namespace

REGISTER_ALLOCATOR(kDevice, &bytes_allocator);

c10::Allocator* device_allocator(c10::ScalarType dtype) {
  if (narrow_types::include(dtype)) {
    return &narrow_allocator;
  }
  return dtype == at::kByte ? &bytes_allocator : &allocator;
}

size_t device_bytes(const c10::Storage& storage) {
  return device_bytes(storage.nbytes(), is_narrow(storage));
}

void reserve_as(const c10::Storage& storage, c10::ScalarType dtype) {
  if (storage.allocator() != &bytes_allocator || !narrow_types::include(dtype)) {
    return;
  }
  Block* block = block_of(storage);
  // Two threads may use a tensor for the first time at the same time.
  if (!block || block->narrow.exchange(true)) {
    return;
  }
  storage.unsafeGetStorageImpl()->set_allocator(&narrow_allocator);
  card::release(block->bytes - device_bytes(block->bytes, true), block->reservation);
}

bool is_narrow(const c10::Storage& storage) {
  return storage.allocator() == &narrow_allocator;
}

size_t device_bytes(size_t bytes, bool narrow) {
  return narrow ? (bytes + 1) / 2 : bytes;
}

void free_block(void* context) {
  auto* block = static_cast<Block*>(context);
  card::release(device_bytes(block->bytes, block->narrow), block->reservation);
  delete block;
}

Block* block_of(const c10::Storage& storage) {
  return storage.data_ptr().cast_context<Block>(&free_block);
}

StoragePtr make_storage(size_t bytes, c10::DataPtr data, c10::Allocator* allocator) {
  return c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, std::move(data), allocator, /*resizable=*/true);
}

StoragePtr twin_of(const c10::Storage& storage) {
  if (Block* block = block_of(storage)) {
    if (const auto& failure = failure_of(*block)) {
      TORCH_CHECK(false, *failure);
    }
    if (!block->twin) {
      materialize(storage);
    }
  }
  void* data = storage.mutable_data();  // this copies the memory of a copy-on-write storage
  if (Block* block = block_of(storage)) {
    return block->twin;
  }
  return make_storage(
      storage.nbytes(), c10::DataPtr(data, c10::Device(c10::kCPU)), c10::GetCPUAllocator());
}

void rebind(const c10::Storage& storage, StoragePtr twin, size_t bytes) {
  void* data = twin->mutable_data();
  Block* old = block_of(storage);
  auto* impl = storage.unsafeGetStorageImpl();
  auto* block = new Block{std::move(twin), bytes, is_narrow(storage)};
  if (old) {
    block->mark = old->mark;
    block->number = old->number;
    block->assumption = old->assumption;
    if (old->twin) {
      block->failure = old->failure;
    }
  }
  impl->set_data_ptr_noswap({data, block, &free_block, device()});
  impl->set_nbytes(bytes);
}

void follow_twin(const c10::Storage& storage, Block& block) {
  StoragePtr twin = block.twin;
  if (twin->nbytes() == block.bytes) {
    rebind(storage, std::move(twin), std::exchange(block.bytes, 0));
    return;
  }
  try {
    card::reserve(device_bytes(twin->nbytes(), block.narrow));
  } catch (const c10::Error&) {
    at::native::resize_bytes_cpu(twin.get(), block.bytes);
    rebind(storage, std::move(twin), std::exchange(block.bytes, 0));
    throw;
  }
  const size_t bytes = twin->nbytes();
  rebind(storage, std::move(twin), bytes);
}

}  // namespace hpu
