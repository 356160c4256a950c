// Python bindings of the clock.
#include "prices/observer.h"

#include <pybind11/stl.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace hpu {
namespace {

py::dict parts_of(const clock::Parts& seconds) {
  py::dict parts;
  for (size_t i = 0; i < seconds.size(); ++i) {
    parts[clock::kParts[i]] = seconds[i];
  }
  return parts;
}

py::dict reading() {
  const clock::Reading now = clock::read();
  py::dict fields;
  fields["host"] = now.host;
  fields["card"] = now.card;
  fields["idle"] = now.idle;
  fields["compilation"] = now.compilation;
  fields["busy"] = parts_of(now.busy);
  fields["launches"] = now.launches;
  fields["waits"] = now.waits;
  fields["lost"] = now.lost;
  fields["unpriced"] = now.unpriced;
  return fields;
}

py::list records() {
  py::list all;
  for (const clock::Record& record : clock::take_records()) {
    py::list shares;
    for (const clock::Share& share : record.shares) {
      shares.append(py::make_tuple(share.label, parts_of(share.seconds)));
    }
    all.append(py::make_tuple(
        record.name, record.launched, record.price.host, record.start, record.price.card,
        parts_of(record.price.parts), record.label, shares));
  }
  return all;
}

}  // namespace

namespace prices {
void bind_source(py::module_& module);  // source.cpp
}  // namespace prices

void bind_clock(py::module_& module) {
  prices::bind_source(module);
  module.def(
      "start_clock",
      [](bool measures_host, size_t most_records) {
        prices::take_collected();
        clock::start(measures_host, most_records);
        prices::observe(true);
      },
      py::arg("measures_host"), py::arg("most_records"));
  module.def("stop_clock", [] {
    prices::observe(false);
    clock::stop();
  });
  module.def("wait_for_card", &clock::wait);
  module.def("set_label", &clock::set_label, py::arg("label"));
  module.def("join_clock", &clock::join, py::arg("end"));
  module.def("pause_host_clock", &clock::exclude);
  module.def("resume_host_clock", &clock::include);
  module.def("read_clock", &reading);
  module.def("keep_records", &clock::keep_records, py::arg("most"));
  module.def("take_records", &records);
  module.def("forget_prices", &clock::forget_prices);
}

}  // namespace hpu
