#include "device/cuda_build.h"

#include <ATen/detail/CUDAHooksInterface.h>

#include <new>

namespace hpu {

bool make_room_beside_cuda() {
  auto& hooks = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  if (hooks.hasCUDA()) {
    return false;
  }
  // The object is made while torch._C is imported, and nothing takes it back: it becomes that of a
  // build without CUDA where it is. Both have virtual functions and nothing else.
  static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void*));
  new (&hooks) at::CUDAHooksInterface;
  return true;
}

}  // namespace hpu
