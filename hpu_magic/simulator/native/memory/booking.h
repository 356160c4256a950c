// Bytes on the card: booked for a storage, or looked for before a kernel takes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace hpu {

/// Books bytes on the card; throws the vendor's out-of-memory error past its capacity.
void charge(size_t bytes);

/// Throws the same error unless `bytes` fit beside what is booked and `unbooked` more.
void check_room(size_t bytes, int64_t unbooked = 0);

/// Makes room and tries again, as the bridge does before it gives up. Simulated memory has no
/// gaps to close: what can be had is memory kept for later, which helps where the host is short
/// of it and not where the card is full.
bool defragment(const std::function<bool()>& attempt);

}  // namespace hpu
