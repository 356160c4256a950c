#pragma once

#include <torch/csrc/utils/pybind.h>

namespace hpu {

/// Adds `Program` and `Slot` to the engine's Python module.
void bind_program(pybind11::module_& module);

}  // namespace hpu
