#include "threads/interpreter_guard.h"

#include "threads/locks.h"

#include <Python.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace hpu {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);

std::atomic<uint32_t> guarded{0};  // threads
std::atomic<bool> ending{false};
thread_local uint32_t mine = 0;  // of the guards, one within another
thread_local bool ends_python = false;

void forget_other_threads() {
  guarded.store(mine > 0 ? 1 : 0);
}

const bool fork_handler =
    locks::forget_in_child(locks::Forgotten::guarded_threads, &forget_other_threads);

}  // namespace

InterpreterGuard::InterpreterGuard() {
  if (mine == 0) {
    ++guarded;  // before the look at `ending`: one of two threads sees the other
    if (!Py_IsInitialized() || (ending.load() && !ends_python)) {
      --guarded;
      return;
    }
  }
  ++mine;
  held_ = true;
}

InterpreterGuard::~InterpreterGuard() {
  if (held_ && --mine == 0) {
    --guarded;
  }
}

void end_interpreter_guards() {
  ends_python = true;
  ending.store(true);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (guarded.load() > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace hpu
