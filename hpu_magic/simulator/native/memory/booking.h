// Bookkeeping of the card's memory: bytes that storages use, and checks before a kernel allocates.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace hpu {

/// Books bytes on the card; raises the vendor's out-of-memory error beyond its capacity.
void book(size_t bytes);

/// Raises the same error unless `bytes` fit in addition to the booked ones and `unbooked` others.
void check_room(size_t bytes, int64_t unbooked = 0);

/// Frees memory and tries again, like the bridge before it raises an error. Simulated memory has no
/// gaps, so only cached memory can be freed. This helps if the host is out of memory, not if the
/// card is full.
bool defragment(const std::function<bool()>& attempt);

}  // namespace hpu
