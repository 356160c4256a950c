#include "events/events.h"

#include "threads/interpreter.h"
#include "threads/locks.h"

#include <Python.h>
#include <frameobject.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

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
        // These parts are listed instead of the package, because a user's folder may also be called
        // hpu_magic.
        "/hpu_magic/lightning/", "/hpu_magic/magics/", "/hpu_magic/panels/", "/hpu_magic/runtime/",
        "/hpu_magic/simulator/", "<frozen "}) {
    if (file.find(part) != std::string_view::npos) {
      return true;
    }
  }
  return is_standard_library(file);
}

/// The origin of a file's code.
enum class Origin : uint8_t { library, package, own };

Origin origin_of(const std::string& file) {
  static auto& known = *new std::unordered_map<std::string, Origin>;  // guarded by the GIL
  const auto found = known.find(file);
  if (found != known.end()) {
    return found->second;
  }
  const bool installed = file.find("-packages/") != std::string::npos ||
      file.find("/hpu_magic/dry_run/") != std::string::npos;
  const Origin origin = is_library(file) ? Origin::library
      : installed                        ? Origin::package
                                         : Origin::own;
  return known.emplace(file, origin).first->second;
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

/// Returns the line of the innermost frame whose code has at least the wanted origin. If there is
/// none, returns the best line, preferring inner frames.
PythonLine innermost_line(Origin wanted) {
  const InterpreterGuard guard;
  if (!guard) {
    return {};
  }
  locks::check_may_take_gil();
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  PythonLine best;
  Origin origin = Origin::library;
  while (frame) {
    PythonLine line = line_of(frame);
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
    const Origin found = origin_of(line.file);
    if (best.file.empty() || found > origin) {
      best = std::move(line);
      origin = found;
    }
    if (origin >= wanted) {
      break;
    }
  }
  Py_XDECREF(frame);
  PyGILState_Release(gil);
  return best;
}

}  // namespace

PythonLine python_line() {
  return innermost_line(Origin::package);
}

PythonLine own_line() {
  return innermost_line(Origin::own);
}

}  // namespace hpu::events
