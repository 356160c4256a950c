#include "lazy/interruption.h"

#include "threads/locks.h"

#include <pybind11/pybind11.h>

namespace hpu {
namespace {

struct Interrupted : pybind11::error_already_set {
  const char* what() const noexcept override { return "it was interrupted"; }
};

}  // namespace

void Interruption::check() {
  const auto now = Clock::now();
  if (now - asked_ < std::chrono::milliseconds(100) || !Py_IsInitialized()) {
    return;
  }
  asked_ = now;
  locks::check_may_ask_for_gil();
  pybind11::gil_scoped_acquire gil;
  // Does nothing on any thread but Python's main one.
  if (PyErr_CheckSignals() != 0) {
    throw Interrupted();
  }
}

}  // namespace hpu
