// Python bindings of dry runs.
#include "calls/stand_ins.h"
#include "calls/thread_modes.h"
#include "events/events.h"
#include "lazy/assumed_experts.h"
#include "lazy/dry_call.h"
#include "lazy/known_values.h"
#include "memory/allocations.h"
#include "memory/block.h"
#include "memory/memory.h"
#include "memory/skipping.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace hpu {
namespace {

py::tuple as_tuple(const events::PythonLine& line) {
  return py::make_tuple(line.file, line.number);
}

py::tuple as_tuple(const events::CallerLines& lines) {
  return py::make_tuple(as_tuple(lines.own), as_tuple(lines.library));
}

const char* name_of(allocations::Phase phase) {
  switch (phase) {
    case allocations::Phase::backward:
      return "backward";
    case allocations::Phase::optimizer:
      return "optimizer";
    default:
      return "forward";
  }
}

void start_dry_run(
    const std::vector<std::tuple<std::string, int, double>>& supplied, double imbalance,
    int64_t ranks) {
  assumed_experts::set_imbalance(imbalance, ranks);
  std::vector<stand_ins::Supplied> values;
  for (const auto& [file, line, value] : supplied) {
    values.push_back({file, line, value});
  }
  stand_ins::supply(std::move(values));
  events::count_lines();
  allocations::record();
  skipping::mode = skipping::Mode::dry_run;
}

py::tuple peak() {
  allocations::Peak peak = [] {
    const py::gil_scoped_release released;
    return allocations::peak();
  }();
  py::list reservations;
  for (const auto& each : peak.reservations) {
    reservations.append(
        py::make_tuple(each.number, as_tuple(each.lines), name_of(each.phase), each.bytes));
  }
  return py::make_tuple(peak.bytes, reservations);
}

py::object last_failure() {
  const auto failure = allocations::last_failure();
  if (!failure) {
    return py::none();
  }
  py::dict fields;
  fields["lines"] = as_tuple(failure->lines);
  fields["bytes"] = failure->bytes;
  fields["in_use"] = failure->in_use;
  fields["capacity"] = failure->capacity;
  return fields;
}

py::list line_counts() {
  py::list counts;
  for (const auto& each : events::line_counts()) {
    counts.append(py::make_tuple(
        events::name_of(each.kind), each.name, as_tuple(each.lines), each.count));
  }
  return counts;
}

/// Returns the number of the reservation that holds a tensor's memory, or 0.
uint64_t reservation_of(const at::Tensor& tensor) {
  if (!is_real(tensor) || !has_memory(tensor.storage())) {
    return 0;
  }
  const Block* block = block_of(tensor.storage());
  return block ? block->reservation : 0;
}

/// Returns the values of a device tensor, or nullopt if they are not sent to other ranks.
std::optional<at::Tensor> sent_values(const at::Tensor& tensor) {
  if (stand_ins::assumed(tensor) || !keeps_host_values(tensor)) {
    return std::nullopt;
  }
  const KernelsOnly kernels;
  return host_view(tensor).clone(at::MemoryFormat::Contiguous);
}

/// Stores values from another rank in a device tensor. If there are no values, the tensor's values
/// are assumed.
void receive_values(const at::Tensor& tensor, const std::optional<at::Tensor>& values) {
  if (values) {
    const KernelsOnly kernels;
    copy_or_assume(*values, tensor);
  } else {
    *assumption_of(tensor.storage()) = {true};
  }
}

}  // namespace

void bind_dry_run(py::module_& module) {
  module.def(
      "start_dry_run", &start_dry_run, py::arg("supplied"), py::arg("imbalance"),
      py::arg("ranks"));
  module.def("is_unbalanced", &assumed_experts::unbalanced);
  module.def("set_optimizing", &allocations::set_optimizing);
  module.def("peak_reservations", &peak);
  module.def("memory_course", &allocations::course, py::arg("most"));
  module.def("reservation_totals", &allocations::totals);
  module.def("operations_digest", &digest_of_calls);
  module.def("last_failure", &last_failure);
  module.def("line_counts", &line_counts);
  module.def("reservation_of", &reservation_of);
  module.def(
      "sent_values", &sent_values, py::arg("tensor"), py::call_guard<py::gil_scoped_release>());
  module.def(
      "receive_values", &receive_values, py::arg("tensor"), py::arg("values"),
      py::call_guard<py::gil_scoped_release>());
}

}  // namespace hpu
