// The memory of a device storage: a CPU storage, and the device memory that is reserved for it.
#pragma once

#include "memory/memory.h"

#include <atomic>

namespace hpu {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

struct Block {
  StoragePtr twin;  // CPU storage of the bytes; null until a recorded operation writes them
  size_t bytes = 0;  // of the twin, for which device memory is reserved
  std::atomic<bool> narrow{false};  // whether the card stores them in half their size
  RecordMark mark{};
  uint64_t number = 0;  // see number_of
  std::shared_ptr<const std::string> failure{};  // why the storage will never be written
};

void free_block(void* block);

/// The block of a device storage; null for storages of other devices.
Block* block_of(const c10::Storage& storage);

/// Why a block does not have the values that the program expects; null if it has them.
std::shared_ptr<const std::string>& failure_of(Block& block);

/// Whether the card stores a storage's elements in half their size, according to its allocator.
bool is_narrow(const c10::Storage& storage);

/// The device memory for `bytes` of host memory.
size_t device_bytes(size_t bytes, bool narrow);

/// Counts an untyped storage, for example from a file or after a resize, as a storage of `dtype`.
void reserve_as(const c10::Storage& storage, c10::ScalarType dtype);

StoragePtr make_storage(size_t bytes, c10::DataPtr data, c10::Allocator* allocator);

/// The CPU storage over a device storage's memory. Allocates the memory if necessary.
StoragePtr twin_of(const c10::Storage& storage);

/// Replaces a storage's twin with another one, for which `bytes` are reserved.
void rebind(const c10::Storage& storage, StoragePtr twin, size_t bytes);

/// Updates a device storage after a kernel resized its twin.
void follow_twin(const c10::Storage& storage, Block& block);

}  // namespace hpu
