// The engine as a Python module.
#include "autocast.h"
#include "card.h"
#include "device.h"
#include "dtypes.h"
#include "generator.h"

#include <c10/core/AutogradState.h>
#include <torch/csrc/utils/pybind.h>

namespace py = pybind11;

namespace {

/// `acquire` returns (page, offset of the counters, capacity in bytes, float8 limit).
void set_driver(py::function acquire) {
  // Leaked: the driver is asked from any thread until the process ends.
  auto* function = new py::function(std::move(acquire));
  hpu::card::set_driver([function]() -> hpu::Acquisition {
    py::gil_scoped_acquire gil;
    auto [page, offset, capacity, float8_limit] =
        (*function)().cast<std::tuple<py::buffer, size_t, int64_t, double>>();
    // The mapping must outlive every tensor: keep the buffer for the life of the process.
    auto* view = new py::buffer_info(page.request(/*writable=*/true));
    TORCH_CHECK(
        offset + sizeof(hpu::Counters) <= static_cast<size_t>(view->size * view->itemsize),
        "The card's page is too small for its counters.");
    hpu::set_float8_e4m3fn_limit(float8_limit);
    return {
        reinterpret_cast<hpu::Counters*>(static_cast<char*>(view->ptr) + offset), capacity};
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

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.doc() = "The simulated device behind PyTorch's hpu.";
  module.def("set_driver", &set_driver);
  module.def("acquire", &hpu::card::acquire, py::call_guard<py::gil_scoped_release>());
  module.def("is_acquired", &hpu::card::acquired);
  module.def("memory_stats", &memory_stats);
  module.def("reset_peak_memory_stats", &hpu::card::reset_peak);
  module.def("reset_accumulated_memory_stats", &hpu::card::reset_accumulated);
  module.def("set_autocast_operators", &hpu::autocast::set_operators);
  module.def("current_stream_id", [] { return hpu::current_stream().id(); });
  module.def("default_generator", [] { return hpu::default_generator(); });
}
