// How threads of the engine use Python: the GIL, Ctrl-C and the interpreter's exit.
#pragma once

#include <Python.h>

#include <chrono>

namespace hpu {

/// Releases the GIL, if this thread holds it. No thread may wait for a locks::Long while it holds
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
/// it ends threads that wait for the GIL, and C++ aborts the process if this happens in a
/// destructor. Threads of the engine and the transport hold a guard while they call Python or free
/// tensors that have Python objects.
class InterpreterGuard {
 public:
  InterpreterGuard();
  ~InterpreterGuard();
  InterpreterGuard(const InterpreterGuard&) = delete;
  InterpreterGuard& operator=(const InterpreterGuard&) = delete;

  /// False if Python is exiting or has exited. Then leak the owners of Python objects, because
  /// these objects must not be used.
  explicit operator bool() const {
    return held_;
  }

 private:
  bool held_ = false;
};

/// Prevents new guards in all other threads, and waits for existing guards. Waits at most 30
/// seconds, because guarded threads may run users' functions. Call it without the GIL, on the
/// thread on which Python exits.
void end_interpreter_guards();

/// Lets Ctrl-C interrupt long work that runs without Python.
class Interruption {
 public:
  /// Runs the handlers of pending signals, at most ten times per second. Throws the exception of a
  /// handler, usually KeyboardInterrupt.
  void check();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point checked_at_ = Clock::now();
};

/// Rethrows the current exception if it is an interrupt or exit that a Python kernel raised.
/// Otherwise, clears the thread's Python error. Call it in handlers that interpret a kernel's
/// error.
void rethrow_interrupt();

}  // namespace hpu
