// All locks of the engine, the order in which they are acquired, and their state after a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace hpu::locks {

/// The order in which a thread may acquire locks. A thread that holds a lock may acquire only locks
/// that come later in this list.
enum class Rank : uint8_t {
  compilation,
  recorder,
  operators,
  pinned_memory,
  cached_memory,
  events,
  allocations,
  collectives,
  clock
};

/// A lock for short critical sections that never call Python. A fork waits for this lock, so that
/// the guarded data is in a consistent state in the child.
class Brief {
 public:
  explicit constexpr Brief(Rank rank) : rank_(rank) {}
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  const Rank rank_;
};

/// A recursive lock that is held while kernels run. Kernels may acquire the GIL to find the Python
/// line of an event, or because they release the last reference to a tensor that has a Python
/// object. Therefore, a thread releases the GIL while it waits for this lock. Threads acquire the
/// lock in the order in which they requested it, because a loop of replays would otherwise starve a
/// reader. A fork does not wait for the lock, because this could take as long as a kernel, or
/// forever. In the child, the lock is free and the guarded state is reset.
class Long {
 public:
  explicit constexpr Long(Rank rank) : rank_(rank) {}
  void lock();
  void unlock();

  /// Frees the lock, unless the thread that forked holds it. Called in the child after a fork.
  void renew();

 private:
  std::mutex mutex_;
  std::mutex next_;  // held by the first waiting thread
  std::atomic<uint32_t> waiting_{0};
  std::atomic<const void*> owner_{nullptr};
  uint32_t depth_ = 0;  // how many times the owner has locked it
  const Rank rank_;
};

// The locks, with the data that they guard.
extern Long compilation;  // the first compilation of a backward program
extern Long recorder;  // recorded and captured operations, and all device memory in lazy mode
extern Brief operators;  // the set of operators that have a device kernel
extern Brief pinned_memory;  // the address ranges of pinned host memory
extern Brief cached_memory;  // freed memory that is cached for the next tensor of the same size
extern Brief events;  // the event counters and the event buffer
extern Brief allocations;  // the history of device memory in a dry run
extern Brief collectives;  // the collectives that have not finished
extern Brief clock;  // the clocks of host and card, and known prices

/// State that is reset in a forked child, in this order, after the locks have been freed.
enum class ForkedState : uint8_t { card, recorded_work, guarded_threads };
/// Registers a function that resets the state. Returns true, so that a constant can be initialized
/// with the call.
bool reset_in_child(ForkedState what, void (*forget)());

/// In a build that checks the lock order (HPU_MAGIC_CHECK_LOCKS), aborts the process if the thread
/// requests the GIL while it holds a Brief lock. Has no effect in other builds.
void check_may_take_gil();

}  // namespace hpu::locks
