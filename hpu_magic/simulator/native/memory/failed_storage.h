// Storages that do not have their values, because the operation that writes them failed.
#pragma once

#include "memory/memory.h"

#include <memory>
#include <string>

namespace hpu {

/// Why a storage does not have the values that the program expects; null if it has them. Every use
/// of a failed storage raises this.
std::shared_ptr<const std::string> failure_of(const c10::Storage& storage);

/// Makes every later use of a tensor's storage raise `why`.
void fail(const at::Tensor& tensor, const std::shared_ptr<const std::string>& why);

/// Frees a storage's memory; until it is written again, every use of it raises `why`.
void free_memory(const c10::Storage& storage, const std::shared_ptr<const std::string>& why);

/// Makes a storage usable again, because an operation will write it.
void clear_failure(const c10::Storage& storage);

/// Makes a failed storage usable again if `tensor`, which is about to be overwritten, covers all of
/// it.
void clear_failure_if_overwritten(const at::Tensor& tensor);

/// In the child of a fork: makes the storages that these graphs write raise `why`.
void lose_writes(
    uint64_t first_graph, uint64_t last_graph, const std::shared_ptr<const std::string>& why);

}  // namespace hpu
