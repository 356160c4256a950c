// Every lock of the engine: their order, and what becomes of them in a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace hpu::locks {

/// The order in which one thread may take them: each only while it holds none of those below.
enum class Rank : uint8_t {
  compilation,
  recorder,
  operators,
  pinned_memory,
  kept_memory,
  events,
  collectives
};

/// Held for a moment, and never while Python is asked for anything. A fork waits for it, so that
/// the child finds whole what it guards.
class Brief {
 public:
  explicit constexpr Brief(Rank rank) : rank_(rank) {}
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  const Rank rank_;
};

/// Held while kernels run, which may ask for the GIL: to name the line of an event, or because
/// they drop the last use of a tensor known to Python. So whoever waits for it lets go of the GIL.
/// A thread may take it again, and threads get it in the order in which they asked: a loop of
/// replays would starve a reader otherwise. A fork does not wait, since that might take as long as
/// a kernel does or for ever: the child gets the lock free, and forgets what it guarded.
class Long {
 public:
  explicit constexpr Long(Rank rank) : rank_(rank) {}
  void lock();
  void unlock();

  /// In the child of a fork: free, unless the thread that forked holds it.
  void renew();

 private:
  std::mutex mutex_;
  std::mutex next_;  // held by the first of those who wait
  std::atomic<uint32_t> waiting_{0};
  std::atomic<const void*> owner_{nullptr};
  uint32_t depth_ = 0;  // of the owner
  const Rank rank_;
};

extern Long compilation;     // of a backward program, at its first use
extern Long recorder;        // recorded and captured work, and all device memory in lazy mode
extern Brief operators;      // which operators have a device kernel
extern Brief pinned_memory;  // addresses of page-locked memory
extern Brief kept_memory;    // memory that is kept for the next tensor of its size
extern Brief events;         // counters and the buffer of events
extern Brief collectives;    // those that have not ended

/// What the child of a fork lets go of, in this order, once its locks are free.
enum class Forgotten : uint8_t { card, recorded_work, guarded_threads };
/// Returns true, for the initialisation of a constant.
bool forget_in_child(Forgotten what, void (*forget)());

/// In a build that checks the order (HPU_MAGIC_CHECK_LOCKS), ends the process where a thread asks
/// for the GIL with a brief lock in its hands. Else nothing.
void check_may_ask_for_gil();

}  // namespace hpu::locks
