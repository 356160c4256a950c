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

/// Delays the exit of Python while a thread that Python does not track needs the GIL. A Python that
/// exits ends threads that wait for the GIL, and C++ aborts the process if this happens in a
/// destructor. Threads of the engine and of a transport hold a guard while they call Python or
/// release tensors that have Python objects.
class InterpreterGuard {
 public:
  InterpreterGuard();
  ~InterpreterGuard();
  InterpreterGuard(const InterpreterGuard&) = delete;
  InterpreterGuard& operator=(const InterpreterGuard&) = delete;

  /// False if Python exits or has exited: do not touch Python objects, leak their owners instead.
  explicit operator bool() const {
    return held_;
  }

 private:
  bool held_ = false;
};

/// Refuses guards to all other threads from now on, and waits for the guards in use, for at most 30
/// seconds because they may run users' functions. Called without the GIL, by the thread on which
/// Python exits.
void end_interpreter_guards();

/// Lets Ctrl-C end long work that runs without Python.
class Interruption {
 public:
  /// Runs the handlers of pending signals, at most ten times per second. Throws the exception of a
  /// handler, usually KeyboardInterrupt.
  void check();

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point checked_at_ = Clock::now();
};

/// Rethrows the handled exception if it is an interrupt or exit that a Python kernel raised. Clears
/// other Python errors of this thread. For handlers that interpret a kernel's error.
void rethrow_interrupt();

}  // namespace hpu
