#include "collectives/bind_collectives.h"

#include "collectives/backend.h"
#include "collectives/outstanding.h"

#include <c10/core/SafePyObject.h>
#include <torch/csrc/PyInterpreter.h>

#include <pybind11/chrono.h>

namespace py = pybind11;

namespace hpu {
namespace {

/// A function of Python for threads without the GIL, which keeps the transport's words where Python
/// has ended or raises.
collectives::Explain without_gil(py::function explain) {
  const auto function =
      std::make_shared<c10::SafePyObject>(explain.release().ptr(), getPyInterpreter());
  return [function](const std::string& call, const std::string& reason) -> std::string {
    if (!Py_IsInitialized()) {
      return reason;
    }
    const py::gil_scoped_acquire gil;
    try {
      const auto callable =
          py::reinterpret_borrow<py::function>(function->ptr(getPyInterpreter()));
      return callable(call, reason).cast<std::string>();
    } catch (const py::error_already_set& error) {
      return reason + " (" + error.what() + ")";
    }
  };
}

}  // namespace

void bind_collectives(py::module_& module) {
  module.def(
      "make_hccl",
      [](const c10::intrusive_ptr<c10d::Backend>& transport, int rank, int size,
         std::chrono::milliseconds timeout,
         py::function explain) -> c10::intrusive_ptr<c10d::Backend> {
        return c10::make_intrusive<collectives::Hccl>(
            transport, rank, size, timeout, without_gil(std::move(explain)));
      },
      py::arg("transport"), py::arg("rank"), py::arg("size"), py::arg("timeout"),
      py::arg("explain"));
  module.def(
      "wait_for_collectives", &collectives::wait_for_all,
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace hpu
