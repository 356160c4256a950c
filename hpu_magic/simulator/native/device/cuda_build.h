// PyTorch built for CUDA.
#pragma once

namespace hpu {

/// Such a build names CUDA as the process's accelerator, GPU or not, and refuses a second one.
/// Makes CUDA stand aside on a machine without a GPU; false where there is one.
bool make_room_beside_cuda();

}  // namespace hpu
