#include "collectives/bind_collectives.h"

#include "collectives/backend.h"
#include "collectives/outstanding.h"

#include <c10/core/SafePyObject.h>
#include <torch/csrc/PyInterpreter.h>

#include <pybind11/chrono.h>
#include <pybind11/stl.h>

namespace py = pybind11;

namespace hpu {
namespace {

/// A function of Python for threads without the GIL, which keeps the transport's words where Python
/// has ended or raises.
collectives::Explain without_gil(py::function explain) {
  const auto function =
      std::make_shared<c10::SafePyObject>(explain.release().ptr(), getPyInterpreter());
  return [function](const collectives::Failure& failure) -> std::string {
    if (!Py_IsInitialized()) {
      return failure.words;
    }
    const py::gil_scoped_acquire gil;
    try {
      const auto callable =
          py::reinterpret_borrow<py::function>(function->ptr(getPyInterpreter()));
      return callable(failure.call, failure.words, failure.asked, failure.others)
          .cast<std::string>();
    } catch (const py::error_already_set& error) {
      return failure.words + " (" + error.what() + ")";
    }
  };
}

}  // namespace

void bind_collectives(py::module_& module) {
  module.def(
      "make_hccl",
      [](const c10::intrusive_ptr<c10d::Backend>& transport, int rank, int size,
         std::chrono::milliseconds timeout, py::function explain,
         int announcements) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<collectives::Hccl>(
            transport, rank, size, timeout, without_gil(std::move(explain)),
            std::make_unique<collectives::Announcements>(announcements, rank, size));
      },
      py::arg("transport"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
      py::arg("explain"), py::arg("announcements"));
  module.def("bytes_for_announcements", &collectives::Announcements::bytes_for, py::arg("size"));
  module.def(
      "wait_for_collectives", &collectives::wait_for_all,
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace hpu
