#include "threads/interpreter.h"

#include "threads/locks.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace hpu {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);

std::atomic<uint32_t> guarded_threads{0};
std::atomic<bool> ending{false};
thread_local uint32_t nested_guards = 0;  // number of guards that this thread holds
thread_local bool ends_python = false;

void forget_other_threads() {
  guarded_threads.store(nested_guards > 0 ? 1 : 0);
}

const bool fork_handler =
    locks::reset_in_child(locks::ForkedState::guarded_threads, &forget_other_threads);

struct Interrupted : pybind11::error_already_set {
  const char* what() const noexcept override { return "it was interrupted"; }
};

}  // namespace

InterpreterGuard::InterpreterGuard() {
  if (nested_guards == 0) {
    // Increment before reading `ending`, so that at least one of the two threads sees the other.
    ++guarded_threads;
    if (!Py_IsInitialized() || (ending.load() && !ends_python)) {
      --guarded_threads;
      return;
    }
  }
  ++nested_guards;
  held_ = true;
}

InterpreterGuard::~InterpreterGuard() {
  if (held_ && --nested_guards == 0) {
    --guarded_threads;
  }
}

void end_interpreter_guards() {
  ends_python = true;
  ending.store(true);
  const auto until = std::chrono::steady_clock::now() + kPatience;
  while (guarded_threads.load() > 0 && std::chrono::steady_clock::now() < until) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void Interruption::check() {
  const auto now = Clock::now();
  if (now - checked_at_ < std::chrono::milliseconds(100)) {
    return;
  }
  checked_at_ = now;
  const InterpreterGuard guard;
  if (!guard) {
    return;
  }
  locks::check_may_take_gil();
  pybind11::gil_scoped_acquire gil;
  // PyErr_CheckSignals() has no effect on threads other than Python's main thread.
  if (PyErr_CheckSignals() != 0) {
    throw Interrupted();
  }
}

void rethrow_interrupt() {
  try {
    throw;
  } catch (python_error& error) {  // this error may still be set on the thread
    locks::check_may_take_gil();
    const pybind11::gil_scoped_acquire gil;
    error.persist();
    if (error.type && !PyErr_GivenExceptionMatches(error.type, PyExc_Exception)) {
      error.restore();
      throw pybind11::error_already_set();
    }
  } catch (const pybind11::error_already_set& error) {
    locks::check_may_take_gil();
    const pybind11::gil_scoped_acquire gil;
    if (!error.matches(PyExc_Exception)) {
      throw;
    }
  } catch (...) {  // not a Python error
  }
}

}  // namespace hpu
