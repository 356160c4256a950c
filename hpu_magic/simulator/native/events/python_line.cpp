#include "events/events.h"

#include "threads/interpreter.h"
#include "threads/locks.h"

#include <Python.h>
#include <frameobject.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>
#include <unordered_map>

namespace hpu::events {
namespace {

/// Returns whether a file, for example pprint.py, is part of Python's standard library.
bool is_standard_library(std::string_view file) {
  return file.find("/lib/python3.") != std::string_view::npos &&
      file.find("-packages/") == std::string_view::npos;
}

bool contains_any(std::string_view file, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [file](std::string_view part) {
    return file.find(part) != std::string_view::npos;
  });
}

bool is_lightning(std::string_view file) {
  return contains_any(file, {"/site-packages/lightning", "/site-packages/pytorch_lightning/"});
}

/// Returns whether a file is part of PyTorch, IPython, hpu_magic or Python.
bool is_library(std::string_view file) {
  const bool listed = contains_any(
      file,
      {"/site-packages/torch/", "/site-packages/IPython/",
        // IPython 8 uses the package decorator to display results.
        "/site-packages/decorator.py", "/site-packages/decorator/",
        // The parts of hpu_magic are listed one by one, because a user's folder may also be called
        // hpu_magic.
        "/hpu_magic/lightning/", "/hpu_magic/magics/", "/hpu_magic/panels/", "/hpu_magic/runtime/",
        "/hpu_magic/simulator/", "<frozen ",
        // Code that torch.fx generates.
        "<eval_with_key>"});
  return listed || is_standard_library(file);
}

/// The origin of a file's code.
enum class Origin : uint8_t { library, lightning, package, own };

Origin origin_of(const std::string& file) {
  static auto& known = *new std::unordered_map<std::string, Origin>;  // guarded by the GIL
  const auto found = known.find(file);
  if (found != known.end()) {
    return found->second;
  }
  const bool installed = file.find("-packages/") != std::string::npos;
  const Origin origin = is_library(file) ? Origin::library
      : is_lightning(file)               ? Origin::lightning
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

/// The line of the innermost frame whose code has at least the wanted origin. If there is none, the
/// best line, preferring inner frames.
class InnermostLine {
 public:
  explicit InnermostLine(Origin wanted) : wanted_(wanted) {}

  /// Considers the next frame, from the inside to the outside.
  void add(const PythonLine& next, Origin origin) {
    if (!found() && (line.file.empty() || origin > origin_)) {
      line = next;
      origin_ = origin;
    }
  }

  bool found() const {
    return !line.file.empty() && origin_ >= wanted_;
  }

  PythonLine line;

 private:
  Origin wanted_;
  Origin origin_ = Origin::library;
};

/// Searches the frames of this thread until all lines are found.
void search(std::initializer_list<InnermostLine*> lines) {
  const InterpreterGuard guard;
  if (!guard) {
    return;
  }
  locks::check_may_take_gil();
  const PyGILState_STATE gil = PyGILState_Ensure();
  PyFrameObject* frame = PyThreadState_GetFrame(PyThreadState_Get());
  const auto found = [](const InnermostLine* line) { return line->found(); };
  while (frame && !std::all_of(lines.begin(), lines.end(), found)) {
    const PythonLine next = line_of(frame);
    PyFrameObject* caller = PyFrame_GetBack(frame);
    Py_DECREF(frame);
    frame = caller;
    const Origin origin = origin_of(next.file);
    for (InnermostLine* line : lines) {
      line->add(next, origin);
    }
  }
  Py_XDECREF(frame);
  PyGILState_Release(gil);
}

}  // namespace

PythonLine python_line() {
  InnermostLine line(Origin::package);
  search({&line});
  return line.line;
}

CallerLines caller_lines() {
  InnermostLine own(Origin::own);
  InnermostLine library(Origin::lightning);
  search({&own, &library});
  const bool same =
      own.line.file == library.line.file && own.line.number == library.line.number;
  return {own.line, same ? PythonLine() : library.line};
}

}  // namespace hpu::events
