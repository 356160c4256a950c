#include "threads/locks.h"

#include "threads/interpreter.h"

#include <pthread.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace hpu::locks {

Long compilation(Rank::compilation);
Long recorder(Rank::recorder);
Brief operators(Rank::operators);
Brief pinned_memory(Rank::pinned_memory);
Brief cached_memory(Rank::cached_memory);
Brief events(Rank::events);
Brief allocations(Rank::allocations);
Brief collectives(Rank::collectives);
Brief clock(Rank::clock);

namespace {

const void* this_thread() {
  static thread_local char address;
  return &address;
}

#ifdef HPU_MAGIC_CHECK_LOCKS

thread_local uint32_t held = 0;  // one bit per rank

[[noreturn]] void fail(const char* what, Rank rank) {
  std::fprintf(
      stderr, "hpu_magic: %s: lock %d, held %x\n", what, static_cast<int>(rank), held);
  std::abort();
}

void note_locked(Rank rank) {
  const uint32_t bit = 1U << static_cast<uint32_t>(rank);
  if (held >= bit) {
    fail("a lock was acquired out of order", rank);
  }
  held |= bit;
}

void note_unlocked(Rank rank) {
  held &= ~(1U << static_cast<uint32_t>(rank));
}

#else

void note_locked(Rank) {}
void note_unlocked(Rank) {}

#endif

std::array<void (*)(), 3> forgotten{};

// A thread that forks does not hold any of these locks, because it is running Python code.
constexpr std::array<Brief*, 7> brief{
    &operators, &pinned_memory, &cached_memory, &events, &allocations, &collectives, &clock};

void before_fork() {
  for (Brief* lock : brief) {
    lock->lock();
  }
}

void release_brief() {
  for (auto lock = brief.rbegin(); lock != brief.rend(); ++lock) {
    (*lock)->unlock();
  }
}

void after_fork_in_child() {
  release_brief();
  compilation.renew();
  recorder.renew();
  for (auto* forget : forgotten) {
    if (forget) {
      forget();
    }
  }
}

const bool fork_handlers = pthread_atfork(&before_fork, &release_brief, &after_fork_in_child) == 0;

}  // namespace

void Brief::lock() {
  note_locked(rank_);
  mutex_.lock();
}

void Brief::unlock() {
  mutex_.unlock();
  note_unlocked(rank_);
}

void Long::lock() {
  const void* self = this_thread();
  if (owner_.load(std::memory_order_relaxed) == self) {
    ++depth_;
    return;
  }
  note_locked(rank_);
  if (waiting_.load(std::memory_order_relaxed) > 0 || !mutex_.try_lock()) {
    ++waiting_;
    {
      const WithoutGil released;
      next_.lock();
      mutex_.lock();
      next_.unlock();
    }
    --waiting_;
  }
  owner_.store(self, std::memory_order_relaxed);
  depth_ = 1;
}

void Long::unlock() {
  if (--depth_ == 0) {
    owner_.store(nullptr, std::memory_order_relaxed);
    mutex_.unlock();
    note_unlocked(rank_);
  }
}

void Long::renew() {
  new (&next_) std::mutex;
  waiting_.store(0);
  if (owner_.load() != this_thread()) {
    new (&mutex_) std::mutex;
    owner_.store(nullptr);
    depth_ = 0;
  }
}

bool reset_in_child(ForkedState what, void (*forget)()) {
  forgotten[static_cast<size_t>(what)] = forget;
  return true;
}

void check_may_take_gil() {
#ifdef HPU_MAGIC_CHECK_LOCKS
  if (held >= 1U << static_cast<uint32_t>(Rank::operators)) {
    fail("the GIL was requested while a lock was held", Rank::operators);
  }
#endif
}

}  // namespace hpu::locks
