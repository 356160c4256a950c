#include "lazy/interruption.h"

#include "threads/interpreter_guard.h"
#include "threads/locks.h"

#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

namespace hpu {
namespace {

struct Interrupted : pybind11::error_already_set {
  const char* what() const noexcept override { return "it was interrupted"; }
};

}  // namespace

void Interruption::check() {
  const auto now = Clock::now();
  if (now - asked_ < std::chrono::milliseconds(100)) {
    return;
  }
  asked_ = now;
  const InterpreterGuard guard;
  if (!guard) {
    return;
  }
  locks::check_may_ask_for_gil();
  pybind11::gil_scoped_acquire gil;
  // Does nothing on any thread but Python's main one.
  if (PyErr_CheckSignals() != 0) {
    throw Interrupted();
  }
}

void rethrow_interrupt() {
  try {
    throw;
  } catch (python_error& error) {  // which may have left the error on the thread
    locks::check_may_ask_for_gil();
    const pybind11::gil_scoped_acquire gil;
    error.persist();
    if (error.type && !PyErr_GivenExceptionMatches(error.type, PyExc_Exception)) {
      error.restore();
      throw pybind11::error_already_set();
    }
  } catch (const pybind11::error_already_set& error) {
    locks::check_may_ask_for_gil();
    const pybind11::gil_scoped_acquire gil;
    if (!error.matches(PyExc_Exception)) {
      throw;
    }
  } catch (...) {  // none of Python's
  }
}

}  // namespace hpu
