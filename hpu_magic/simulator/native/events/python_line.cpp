#include "events/events.h"

#include "threads/interpreter.h"
#include "threads/locks.h"

#include <Python.h>
#include <frameobject.h>

#include <string_view>

namespace hpu::events {
namespace {

/// Returns whether a file, for example pprint.py, is part of Python's standard library.
bool is_standard_library(std::string_view file) {
  return file.find("/lib/python3.") != std::string_view::npos &&
      file.find("-packages/") == std::string_view::npos;
}

bool is_library(std::string_view file) {
  for (std::string_view part :
       {"/site-packages/torch/", "/site-packages/IPython/", "/site-packages/lightning",
        "/site-packages/pytorch_lightning/",
        // IPython 8 displays results through this package.
        "/site-packages/decorator.py", "/site-packages/decorator/",
        // List only these parts of the package, because a user's folder may also be called
        // hpu_magic.
        "/hpu_magic/lightning/", "/hpu_magic/magics/", "/hpu_magic/panels/", "/hpu_magic/runtime/",
        "/hpu_magic/simulator/", "<frozen "}) {
    if (file.find(part) != std::string_view::npos) {
      return true;
    }
  }
  return is_standard_library(file);
}

PythonLine line_of(PyFrameObject* frame) {
  PythonLine line;
  PyCodeObject* code = PyFrame_GetCode(frame);
  if (const char* file = PyUnicode_AsUTF8(code->co_filename)) {
    line.file = file;
  } else {
    PyErr_Clear();
  }
  Py_DECREF(code);
  line.number = PyFrame_GetLineNumber(frame);
  return line;
}

}  // namespace

PythonLine python_line() {
  const InterpreterGuard guard;
  if (!guard) {
    return {};
  }
  locks::check_may_take_gil();
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  PythonLine innermost;
  PythonLine user_line;
  while (frame) {
    PythonLine line = line_of(frame);
    if (innermost.file.empty()) {
      innermost = line;
    }
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
    if (!is_library(line.file)) {
      user_line = std::move(line);
      break;
    }
  }
  Py_XDECREF(frame);
  PyGILState_Release(gil);
  return user_line.file.empty() ? innermost : user_line;
}

}  // namespace hpu::events
