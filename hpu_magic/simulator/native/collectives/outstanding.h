// Collectives that this process has started and that have not ended.
#pragma once

namespace hpu::collectives {

/// Waits until all of them have ended, well or not, as a card waits for its streams.
/// Throws what the handler of a signal raises meanwhile.
void wait_for_all();

}  // namespace hpu::collectives
