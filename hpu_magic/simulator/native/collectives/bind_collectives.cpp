#include "collectives/announcements.h"
#include "collectives/backend.h"
#include "collectives/work.h"
#include "threads/interpreter.h"

#include <pybind11/chrono.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace hpu {
namespace {

using collectives::Announcements;

/// A Python function that threads can call and destroy without holding the GIL.
class Function {
 public:
  explicit Function(py::function function)
      : held_(new py::function(std::move(function)), &drop) {}

  /// Returns the function's result, or `otherwise` if Python is exiting. If the function raises an
  /// error, returns `otherwise` followed by the error message.
  template <class... Arguments>
  std::string operator()(const std::string& otherwise, Arguments&&... arguments) const {
    const InterpreterGuard guard;
    if (!guard) {
      return otherwise;
    }
    const py::gil_scoped_acquire gil;
    try {
      return (*held_)(std::forward<Arguments>(arguments)...).template cast<std::string>();
    } catch (const py::error_already_set& error) {
      return otherwise + " (" + error.what() + ")";
    }
  }

 private:
  static void drop(const py::function* function) {
    if (const InterpreterGuard guard; guard) {
      const py::gil_scoped_acquire gil;
      delete function;
    }
  }

  std::shared_ptr<const py::function> held_;
};

collectives::Explain explaining(
    Function explain, const std::shared_ptr<Announcements>& announcements) {
  return [explain = std::move(explain), announcements](const collectives::Failure& failure) {
    const auto where = [announcements](int rank) {
      const py::gil_scoped_release released;
      return collectives::location_of(*announcements, rank);
    };
    return explain(
        failure.message, failure.call, failure.message, failure.description, failure.others,
        std::function<std::string(int)>(where));
  };
}

}  // namespace

void bind_collectives(py::module_& module) {
  module.def(
      "make_hccl",
      [](const c10::intrusive_ptr<c10d::Backend>& transport, int rank, int size, int stride,
         std::chrono::milliseconds timeout, py::function explain, py::function where,
         int file) -> c10::intrusive_ptr<c10d::Backend> {
        const auto announcements = std::make_shared<Announcements>(file, rank, size);
        collectives::respond_with(
            announcements, [where = Function(std::move(where))] { return where(""); });
        return c10::make_intrusive<collectives::Hccl>(
            transport, rank, size, stride, timeout,
            explaining(Function(std::move(explain)), announcements), announcements);
      },
      py::arg("transport"), py::arg("rank"), py::arg("size"), py::arg("stride"), py::arg("timeout"),
      py::arg("explain"), py::arg("where"), py::arg("announcements"));
  module.def("bytes_for_announcements", &Announcements::bytes_for, py::arg("size"));
  module.def(
      "wait_for_collectives", &collectives::wait_for_all,
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace hpu
