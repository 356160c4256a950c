#pragma once

namespace hpu {

/// Keeps Python from ending while a thread that Python may not know asks for the GIL. Python ends a
/// thread that waits for the GIL as it ends itself, and C++ aborts the process at a destructor that
/// is left like this. Whatever runs on threads of the engine or of a transport holds a guard while
/// it calls Python, or lets go of tensors that Python knows.
class InterpreterGuard {
 public:
  InterpreterGuard();
  ~InterpreterGuard();
  InterpreterGuard(const InterpreterGuard&) = delete;
  InterpreterGuard& operator=(const InterpreterGuard&) = delete;

  /// False where Python ends or has ended: nothing of Python's may be touched, and what would drop
  /// its objects is to be leaked.
  explicit operator bool() const {
    return held_;
  }

 private:
  bool held_ = false;
};

/// Called by the thread on which Python ends, without the GIL: refuses guards to all others from
/// now on and waits for those that have one, for half a minute at most, as they may run a user's
/// functions.
void end_interpreter_guards();

}  // namespace hpu
