// Autocast: the type to which an operator's inputs are cast.
#pragma once

#include <string>
#include <vector>

namespace hpu::autocast {

/// Registers the casts, once per process. Names are the vendor's operator names ("linear",
/// "truediv"). A name in two lists belongs to the first of lower, fp32, promote.
void set_operators(
    const std::vector<std::string>& lower, const std::vector<std::string>& fp32,
    const std::vector<std::string>& promote);

}  // namespace hpu::autocast
