// Storages that lack what was recorded to be written to them.
#pragma once

#include "memory/memory.h"

namespace hpu {

/// Why a storage does not hold what the program asked for; null where it does. Every use of such
/// a storage raises it. `fail` sets it and `promise` lets it go.
std::shared_ptr<const std::string> failure_of(const c10::Storage& storage);

/// In the child of a fork: the storages that these graphs write lack that for ever, because of
/// `why`.
void lose_writes(
    uint64_t first_graph, uint64_t last_graph, const std::shared_ptr<const std::string>& why);

/// Lets a storage that failed be used again where `tensor`, which is about to be written without
/// being read, is all of it.
void promise_overwritten(const at::Tensor& tensor);

}  // namespace hpu
