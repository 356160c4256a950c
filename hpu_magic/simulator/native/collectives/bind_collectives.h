#pragma once

#include <torch/csrc/utils/pybind.h>

namespace hpu {

void bind_collectives(py::module_& module);

}  // namespace hpu
