// How the engine's threads interact with Python: the GIL, Ctrl-C and interpreter shutdown.
#pragma once

#include <Python.h>

#include <chrono>

namespace hpu {

/// Releases the GIL if this thread holds it. No thread may wait for a locks::Long while it holds
/// the GIL.
class WithoutGil {
 public:
  WithoutGil() : saved_(PyGILState_Check() ? PyEval_SaveThread() : nullptr) {}
  ~WithoutGil() {
    if (saved_) {
      PyEval_RestoreThread(saved_);
    }
  }
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  PyThreadState* saved_;
};

/// Delays Python's exit while a thread that Python does not track needs the GIL. When Python exits,
/// it terminates the threads that are waiting for the GIL, and C++ aborts the process if this
/// happens in a destructor. The threads of the engine and the transport therefore hold a guard
/// while they call Python or free tensors that have Python objects.
class InterpreterGuard {
 public:
  InterpreterGuard();
  ~InterpreterGuard();
  InterpreterGuard(const InterpreterGuard&) = delete;
  InterpreterGuard& operator=(const InterpreterGuard&) = delete;

  /// Returns false if Python is exiting or has exited. In that case, leak the owners of Python
  /// objects, because these objects must no longer be used.
  explicit operator bool() const {
    return held_;
  }

 private:
  bool held_ = false;
};

/// Prevents new guards in all other threads and waits until the existing guards are released. Waits
/// at most 30 seconds, because guarded threads may run users' functions. Must be called without the
/// GIL, on the thread on which Python exits.
void end_interpreter_guards();

/// Allows Ctrl-C to interrupt long-running work that does not involve Python.
class Interruption {
 public:
  /// Runs the handlers of pending signals, at most ten times per second. Rethrows an exception that
  /// a handler raises, usually KeyboardInterrupt.
  void check();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point checked_at_ = Clock::now();
};

/// Rethrows the current exception if it is an interrupt or an exit request that a Python kernel
/// raised. Otherwise, clears the thread's Python error. Call this function in handlers that
/// interpret a kernel's error.
void rethrow_interrupt();

}  // namespace hpu
