// Modes of the current thread, such as autograd, and guards that change them for CPU kernels.
#pragma once

#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hpu {

/// While an instance exists, operators that a kernel calls are neither differentiated nor autocast.
/// CPU autocast must not affect the steps of a device operator.
class BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
};

/// In addition to autograd, disables all modes of the caller, such as fake tensors and vmap. Used
/// for work that is not part of the caller's program, such as a flush.
class KernelsOnly {
  c10::impl::ForceDispatchKeyGuard guard_{
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

/// While an instance exists, `dtype` is the default dtype, for example for the result of int / int.
class DefaultDtype {
 public:
  explicit DefaultDtype(c10::ScalarType dtype) : before_(c10::get_default_dtype()) {
    set(c10::scalarTypeToTypeMeta(dtype));
  }
  ~DefaultDtype() {
    set(before_);
  }
  DefaultDtype(const DefaultDtype&) = delete;
  DefaultDtype& operator=(const DefaultDtype&) = delete;

 private:
  static void set(caffe2::TypeMeta dtype) {
    if (dtype != c10::get_default_dtype()) {
      c10::set_default_dtype(dtype);
    }
  }

  caffe2::TypeMeta before_;
};

/// Runs the backward passes that this thread starts on the same thread. On a separate device
/// thread, OpenMP would start a second team of threads, which would compete for the cores. PyTorch
/// stores this setting per thread and per node of a backward pass, so the engine sets it whenever
/// autograd may use the device for the first time: when autograd requests the device's stream, and
/// when a tensor is created, for example for a gradient that comes from the CPU.
inline void run_backward_on_this_thread() {
  c10::AutogradState& state = c10::AutogradState::get_tls_state();
  if (state.get_multithreading_enabled()) {
    state.set_multithreading_enabled(false);
  }
}

}  // namespace hpu
