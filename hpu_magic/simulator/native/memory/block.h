// The memory of a device storage: a CPU storage and the device memory reserved for it.
#pragma once

#include "memory/allocations.h"
#include "memory/memory.h"

#include <atomic>

namespace hpu {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

struct Block {
  StoragePtr twin;  // CPU storage that holds the bytes; null until a recorded operation writes them
  size_t bytes = 0;  // size of the twin, for which device memory is reserved
  std::atomic<bool> narrow{false};  // whether the card stores the elements at half their size
  RecordMark mark{};
  uint64_t number = 0;  // see number_of
  std::shared_ptr<const std::string> failure{};  // why the storage will never be written
  uint64_t reservation = allocations::latest();  // the reservation of its device memory
  Assumption assumption{};
};

void free_block(void* block);

/// Returns the block of a device storage, or null for a storage on another device.
Block* block_of(const c10::Storage& storage);

/// Returns why a block does not contain the expected values, or null if it contains them.
std::shared_ptr<const std::string>& failure_of(Block& block);

/// Returns whether the card stores a storage's elements at half their size. The storage's allocator
/// determines this.
bool is_narrow(const c10::Storage& storage);

/// Returns the amount of device memory that corresponds to `bytes` of host memory.
size_t device_bytes(size_t bytes, bool narrow);

/// Counts the memory of an untyped storage as if it had been allocated for `dtype`. A storage is
/// untyped if, for example, it was loaded from a file or resized.
void reserve_as(const c10::Storage& storage, c10::ScalarType dtype);

StoragePtr make_storage(size_t bytes, c10::DataPtr data, c10::Allocator* allocator);

/// Returns the CPU storage that shares a device storage's memory. Allocates that memory if
/// necessary.
StoragePtr twin_of(const c10::Storage& storage);

/// Replaces a storage's twin with another one, for which `bytes` of device memory are reserved.
void rebind(const c10::Storage& storage, StoragePtr twin, size_t bytes);

/// Updates a device storage after a kernel has resized its twin.
void follow_twin(const c10::Storage& storage, Block& block);

}  // namespace hpu
