#include "lazy/capture.h"

namespace hpu::recorder {
namespace {

const char* refusal(Cause cause) {
  switch (cause) {
    case Cause::fallback:
      return "cpu fallback is not supported during hpu graph capturing";
    case Cause::host_read:
      return "reading a value on the host is not supported during hpu graph capturing";
    case Cause::host_write:
      return "copying from the host into a tensor that exists is not supported during hpu graph "
             "capturing: replays would not copy again";
    default:
      return "an output shape that depends on data is not supported during hpu graph capturing";
  }
}

}  // namespace

void refuse_in_capture(Cause cause, const std::string& operation) {
  TORCH_CHECK(false, refusal(cause), operation.empty() ? "" : " (" + operation + ")");
}

bool Capture::uses(const at::Tensor& tensor) const {
  for (const Node& node : nodes) {
    for (const auto& [used, written] : node.tensors()) {
      if (used.storage().is_alias_of(tensor.storage())) {
        return true;
      }
    }
  }
  return false;
}

}  // namespace hpu::recorder
