// The memory of a device storage: the bytes, their CPU twin and what the card books for them.
#pragma once

#include "memory/memory.h"

#include <atomic>

namespace hpu {

using StoragePtr = c10::intrusive_ptr<c10::StorageImpl>;

struct Block {
  StoragePtr twin;   // null until a recorded operation writes the storage
  size_t bytes = 0;  // of the twin, as far as they are booked
  std::atomic<bool> narrow{false};  // whether the card takes half of them
  RecordMark mark{};
  uint64_t number = 0;  // see number_of
  std::shared_ptr<const std::string> failure{};  // why it will never be written
};

/// Lets a block's bytes go.
void free_block(void* block);

/// Null for storages of others.
Block* block_of(const c10::Storage& storage);

/// Why a block does not hold what the program asked for.
std::shared_ptr<const std::string>& failure_of(Block& block);

/// Whether the card takes half of a storage's bytes: its allocator tells.
bool is_narrow(const c10::Storage& storage);
size_t booked(size_t bytes, bool narrow);

/// Books a storage of bytes, as files and resized storages are, as one for `dtype`.
void book_as(const c10::Storage& storage, c10::ScalarType dtype);

StoragePtr make_storage(size_t bytes, c10::DataPtr data, c10::Allocator* allocator);

/// The CPU storage over a device storage's memory, which it gets here at the latest.
StoragePtr twin_of(const c10::Storage& storage);

/// Gives a storage another twin, of which `bytes` are booked.
void rebind(const c10::Storage& storage, StoragePtr twin, size_t bytes);

/// Makes a device storage follow its twin after a kernel resized the twin.
void follow_twin(const c10::Storage& storage, Block& block);

}  // namespace hpu
