// Which form of GELU the device computes.
#pragma once

namespace hpu::custom {

/// Whether PT_HPU_FORCE_TANH_FOR_GELU is set to true.
bool asks_for_tanh_gelu();

/// Whether torch's GELU has its tanh form: by default it has.
bool forces_tanh_for_gelu();

}  // namespace hpu::custom
