// Mixed precision: which type an operator's inputs get while autocast is on.
#pragma once

#include <string>
#include <vector>

namespace hpu::autocast {

/// Registers the casts, once a process. Names are the vendor's operator names ("linear",
/// "truediv"); a name in two lists follows the first of lower, fp32, promote.
void set_operators(
    const std::vector<std::string>& lower, const std::vector<std::string>& fp32,
    const std::vector<std::string>& promote);

}  // namespace hpu::autocast
