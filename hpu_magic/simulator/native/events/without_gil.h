#pragma once

#include <Python.h>

namespace hpu {

/// Lets other threads run Python meanwhile. A flush holds the recorder's lock and may ask for the
/// GIL, so that nobody may wait for the recorder while holding it.
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

}  // namespace hpu
