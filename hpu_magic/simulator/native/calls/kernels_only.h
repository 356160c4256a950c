// Guards that keep the thread's modes, such as autograd, away from CPU kernels.
#pragma once

#include <c10/core/DefaultDtype.h>
#include <c10/core/DispatchKeySet.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace hpu {

/// While it exists, operators that a kernel calls are neither differentiated nor cast: autocast of
/// the CPU must not affect the steps of a device operator.
class BelowAutograd {
  c10::impl::ExcludeDispatchKeyGuard guard_{
      c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset};
};

/// In addition, ignores all modes of the caller (fake tensors, vmap), because the work is not the
/// caller's, for example in a flush.
class KernelsOnly {
  c10::impl::ForceDispatchKeyGuard guard_{
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

/// While it exists, another dtype is the default, for example of int / int.
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
