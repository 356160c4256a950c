// Python bindings of the engine.
#include "calls/dtypes.h"
#include "calls/generator.h"
#include "calls/geometry.h"
#include "calls/policy.h"
#include "custom/define.h"
#include "events/events.h"
#include "graphs/hpu_graph.h"
#include "lazy/recorder.h"
#include "memory/card.h"
#include "memory/card_types.h"
#include "memory/memory.h"
#include "memory/skipping.h"
#include "operators/operators.h"
#include "threads/interpreter.h"

#include <c10/core/AutogradState.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace hpu {
void bind_clock(py::module_& module);        // prices/bind_clock.cpp
void bind_dry_run(py::module_& module);      // lazy/bind_dry_run.cpp
void bind_collectives(py::module_& module);  // collectives/bind_collectives.cpp
void bind_program(py::module_& module);      // compile/bind_program.cpp
bool remove_cuda_accelerator();              // device/device.cpp
}  // namespace hpu

namespace {

/// Sets the function that acquires a card. The function returns a tuple (page, offset of the
/// counters in the page, capacity in bytes, float8 limit).
void set_driver(py::function acquire) {
  // Leaked on purpose, because any thread may call the driver until the process ends.
  auto* function = new py::function(std::move(acquire));
  hpu::card::set_driver([function]() -> hpu::Acquisition {
    py::gil_scoped_acquire gil;
    auto [page, offset, capacity, float8_limit] =
        (*function)().cast<std::tuple<py::buffer, size_t, int64_t, double>>();
    // The mapping must outlive every tensor, so the buffer is never freed.
    auto* view = new py::buffer_info(page.request(/*writable=*/true));
    TORCH_CHECK(
        offset + sizeof(hpu::Counters) <= static_cast<size_t>(view->size * view->itemsize),
        "The card's page is too small for its counters.");
    hpu::set_float8_e4m3fn_limit(float8_limit);
    return {
        reinterpret_cast<hpu::Counters*>(static_cast<char*>(view->ptr) + offset), capacity};
  });
}

void set_chooser(py::function choose) {
  auto* function = new py::function(std::move(choose));  // leaked, like the driver
  hpu::card::set_chooser([function](int index) {
    py::gil_scoped_acquire gil;
    (*function)(index);
  });
}

py::dict memory_stats() {
  const hpu::Counters& now = hpu::card::counters();
  py::dict stats;
  stats["Limit"] = hpu::card::capacity();
  stats["InUse"] = now.in_use.load();
  stats["MaxInUse"] = now.max_in_use.load();
  stats["NumAllocs"] = now.num_allocs.load();
  stats["NumFrees"] = now.num_frees.load();
  stats["ActiveAllocs"] = now.num_allocs.load() - now.num_frees.load();
  stats["MaxAllocSize"] = now.max_alloc_size.load();
  stats["TotalSystemAllocs"] = now.total_allocs.load();
  stats["TotalSystemFrees"] = now.total_frees.load();
  stats["TotalActiveAllocs"] = now.total_allocs.load() - now.total_frees.load();
  return stats;
}

py::dict counters() {
  py::dict all;
  for (size_t i = 0; i < hpu::events::kKinds; ++i) {
    const auto kind = static_cast<hpu::events::Kind>(i);
    const auto counter = hpu::events::counter(kind);
    py::dict fields;
    fields["count"] = counter.count;
    fields["nanoseconds"] = counter.nanoseconds;
    fields["longest"] = counter.longest;
    fields["operators"] = counter.names;
    all[hpu::events::name_of(kind)] = fields;
  }
  return all;
}

py::tuple take_events(uint64_t since) {
  py::list events;
  for (const auto& event : hpu::events::since(since)) {
    events.append(py::make_tuple(
        event.sequence, hpu::events::name_of(event.kind), event.name, event.timestamp,
        event.duration, event.file, event.line, event.detail));
  }
  return py::make_tuple(hpu::events::next_sequence(), events);
}

void bind_execution(py::module_& module) {
  // A flush may acquire the GIL while holding the recorder's lock. To avoid a deadlock, these
  // functions must release the GIL before they wait for that lock.
  const auto no_gil = py::call_guard<py::gil_scoped_release>();
  module.def("define_operators_of_mode", &hpu::custom::Operators::define_of_mode, py::arg("lazy"));
  module.def(
      "set_lazy", &hpu::recorder::enable, py::arg("most_operations"),
      py::arg("captures_collectives"));
  module.def(
      "set_compile_only",
      [](bool on) {
        hpu::recorder::flush(hpu::recorder::Cause::mark_step);  // runs in the mode of its recording
        hpu::skipping::mode =
            on ? hpu::skipping::Mode::compile_only : hpu::skipping::Mode::off;
      },
      py::arg("on"), no_gil);
  module.def(
      "mark_step",
      [] {
        hpu::events::emit(hpu::events::Kind::mark_step, "");
        hpu::recorder::flush(hpu::recorder::Cause::mark_step);
      },
      no_gil);
  module.def(
      "materialize",
      [](const at::Tensor& tensor, bool to_read) {
        if (!hpu::is_real(tensor)) {
          return;
        }
        const hpu::recorder::Lock lock;
        hpu::recorder::flush_users_of(tensor, hpu::recorder::Cause::host_read, "data_ptr");
        if (to_read || !hpu::failure_of(tensor.storage())) {
          hpu::materialize(tensor);
        }
      },
      no_gil);
  module.def(
      "run_recorded",
      [] {
        if (!hpu::recorder::capturing()) {
          hpu::recorder::flush(hpu::recorder::Cause::mark_step);
        }
      },
      no_gil);
  module.def("pending_operations", &hpu::recorder::pending, no_gil);
  module.def("is_capturing", [] { return hpu::recorder::capturing(); });
  module.def("checks_geometry", &hpu::checks_geometry);
  module.def("recipe_count", &hpu::recorder::recipe_count, no_gil);
  module.def("clear_recipes", &hpu::recorder::clear_recipes, no_gil);
  module.def(
      "set_operators",
      [](const std::vector<std::string>& operators, const std::string& place_on_cpu) {
        hpu::policy::set(operators, place_on_cpu);
        hpu::register_undecomposed(operators);
      });
  module.def("counters", &counters);
  module.def("listen", &hpu::events::listen);
  module.def("take_events", &take_events);
  module.def(
      "emit_compilation",
      [](const std::string& name, int64_t nanoseconds, std::string detail) {
        hpu::events::emit(
            hpu::events::Kind::graph_compilation, name, nanoseconds, std::move(detail));
      },
      py::arg("name"), py::arg("nanoseconds"), py::arg("detail"));
  py::class_<hpu::HpuGraph>(module, "Graph")
      .def(py::init<>())
      .def("capture_begin", &hpu::HpuGraph::capture_begin, py::arg("dry_run") = false, no_gil)
      .def("capture_end", &hpu::HpuGraph::capture_end, no_gil)
      .def("replay", &hpu::HpuGraph::replay, no_gil)
      .def("reset", &hpu::HpuGraph::reset, no_gil)
      .def("abandon", &hpu::HpuGraph::abandon, no_gil)
      .def(
          "free_intermediates", &hpu::HpuGraph::free_intermediates, py::arg("kept"),
          py::arg("backward"), no_gil)
      .def("free_for_backward", &hpu::HpuGraph::free_for_backward, no_gil)
      .def("is_capturing", &hpu::HpuGraph::is_capturing, no_gil)
      .def("operations", &hpu::HpuGraph::operations)
      .def("is_empty", &hpu::HpuGraph::is_empty);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "The simulated device for PyTorch's hpu backend.";
  module.def("remove_cuda_accelerator", &hpu::remove_cuda_accelerator);
  module.def("set_driver", &set_driver);
  module.def("set_chooser", &set_chooser);
  module.def(
      "set_narrow_types",
      [](bool float64, bool int64, bool check_range) {
        hpu::narrow_types::set({float64, int64, check_range});
      },
      py::arg("float64"), py::arg("int64"), py::arg("check_range"));
  module.def("acquire", &hpu::card::acquire, py::call_guard<py::gil_scoped_release>());
  module.def("is_acquired", &hpu::card::acquired);
  module.def("set_unsupported_types", &hpu::unsupported_types::set);
  module.def("memory_stats", &memory_stats);
  module.def("reset_peak_memory_stats", &hpu::card::reset_peak);
  module.def("reset_accumulated_memory_stats", &hpu::card::reset_accumulated);
  module.def("set_autocast_operators", &hpu::autocast::set_operators);
  module.def("default_generator", [] { return hpu::default_generator(); });
  bind_execution(module);
  hpu::bind_clock(module);
  hpu::bind_program(module);
  hpu::bind_dry_run(module);
  hpu::bind_collectives(module);
  py::module_::import("atexit").attr("register")(py::cpp_function(
      &hpu::end_interpreter_guards, py::call_guard<py::gil_scoped_release>()));
}
