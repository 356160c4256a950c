// Which form of GELU the device computes.
#pragma once

namespace hpu::custom {

/// Whether GELU is in its tanh form whatever is asked for, as PT_HPU_FORCE_TANH_FOR_GELU says.
bool forces_tanh_for_gelu();

}  // namespace hpu::custom
