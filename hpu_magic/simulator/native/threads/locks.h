// All locks of the engine, their order, and their state after a fork.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>

namespace hpu::locks {

/// The order in which a thread may take locks: while it holds one, it may take only later ones.
enum class Rank : uint8_t {
  compilation,
  recorder,
  operators,
  pinned_memory,
  cached_memory,
  events,
  collectives
};

/// A lock for short sections that never call Python. A fork waits for it, so that the child finds
/// the guarded data in a consistent state.
class Brief {
 public:
  explicit constexpr Brief(Rank rank) : rank_(rank) {}
  void lock();
  void unlock();

 private:
  std::mutex mutex_;
  const Rank rank_;
};

/// A recursive lock that is held while kernels run. Kernels may take the GIL to find the line of an
/// event, or because they release the last reference to a tensor with a Python object. Therefore, a
/// thread that waits for this lock releases the GIL. Threads get the lock in the order of their
/// requests, because a loop of replays would otherwise starve a reader. A fork does not wait for
/// the lock, because this could take as long as a kernel, or forever. In the child, the lock is
/// free and the guarded state is reset.
class Long {
 public:
  explicit constexpr Long(Rank rank) : rank_(rank) {}
  void lock();
  void unlock();

  /// In the child of a fork: frees the lock, unless the thread that forked holds it.
  void renew();

 private:
  std::mutex mutex_;
  std::mutex next_;  // held by the first waiting thread
  std::atomic<uint32_t> waiting_{0};
  std::atomic<const void*> owner_{nullptr};
  uint32_t depth_ = 0;  // number of nested locks of the owner
  const Rank rank_;
};

extern Long compilation;  // first compilation of a backward program
extern Long recorder;  // recorded and captured operations, and all device memory in lazy mode
extern Brief operators;  // set of operators that have a device kernel
extern Brief pinned_memory;  // address ranges of page-locked memory
extern Brief cached_memory;  // freed memory that is cached for the next tensor of its size
extern Brief events;  // counters and the buffer of events
extern Brief collectives;  // collectives that have not ended

/// State that the child of a fork resets, in this order, after its locks are free.
enum class ForkedState : uint8_t { card, recorded_work, guarded_threads };
/// Returns true, so that a constant can be initialized with the call.
bool reset_in_child(ForkedState what, void (*forget)());

/// In a build that checks the order (HPU_MAGIC_CHECK_LOCKS), aborts if the thread requests the GIL
/// while it holds a brief lock. No effect in other builds.
void check_may_take_gil();

}  // namespace hpu::locks
