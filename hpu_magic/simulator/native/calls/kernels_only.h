// What the calling thread is in the middle of must not reach the CPU's kernels.
#pragma once

#include <c10/core/DefaultDtype.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hpu {

/// While it lives, operators that a kernel calls are neither differentiated nor cast: a CPU's
/// autocast is not meant for what a device operator does inside.
class BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
};

/// The same where the work is not the caller's own, as at a flush: no mode either that the caller
/// is in (fake tensors, vmap).
class KernelsOnly {
  c10::impl::ForceDispatchKeyGuard guard_{
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

/// While it lives, another dtype is the default, which int / int gives.
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

}  // namespace hpu
