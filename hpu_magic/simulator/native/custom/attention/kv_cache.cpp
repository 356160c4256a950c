// Beam search operations on a KV cache, with four beams per batch entry.
#include "custom/define.h"

namespace hpu::custom {
namespace {

constexpr int64_t kBeams = 4;

void check_reorder(
    const at::Tensor& self, const at::Tensor& start, const at::Tensor& end,
    const at::Tensor& beam_idx) {
  TORCH_CHECK(start.scalar_type() == ScalarType::Int, "Start tensor must be of type Int32");
  TORCH_CHECK(end.scalar_type() == ScalarType::Int, "End tensor must be of type Int32");
  TORCH_CHECK(beam_idx.scalar_type() == ScalarType::Byte, "Beam_idx tensor must be of type UInt8");
  TORCH_CHECK(start.dim() == 1, "Start tensor must have dimensions 1");
  TORCH_CHECK(end.dim() == 1, "End tensor must have dimensions 1");
  TORCH_CHECK(beam_idx.dim() == 1, "Beam_idx tensor must have dimensions 1");
  TORCH_CHECK(
      self.dim() >= 4 && self.sym_size(1) == kBeams, "Self tensor must have shape [batch, 4, "
      "..., length, channels], but got ", self.sym_sizes(), ".");
  for (const at::Tensor* each : {&start, &end, &beam_idx}) {
    TORCH_CHECK(
        each->sym_size(0) == self.sym_size(0), "Start, end and beam_idx must have one element for "
        "each of ", self.sym_size(0), " batch entries, but got ", each->sym_size(0), ".");
  }
}

/// Returns which of the four previous beams a new beam continues. `packed` contains two bits for
/// each new beam; the highest bits are those of the first one.
int64_t continued(uint8_t packed, int64_t beam) {
  return packed >> (2 * (kBeams - 1 - beam)) & 3;
}

at::Tensor kv_reorder_(
    at::Tensor self, const at::Tensor& start, const at::Tensor& end, const at::Tensor& beam_idx) {
  check_reorder(self, start, end, beam_idx);
  if (self.is_meta()) {
    return self;
  }
  for (int64_t batch = 0; batch < self.size(0); ++batch) {
    const int64_t first = start[batch].item<int32_t>();
    const int64_t count = end[batch].item<int32_t>() - first;
    TORCH_CHECK(
        first >= 0 && count >= 0 && first + count <= self.size(-2), "Positions ", first, " to ",
        first + count, " are outside the cache, which has ", self.size(-2), " positions.");
    const at::Tensor columns = self.select(0, batch).narrow(-2, first, count);
    const auto packed = beam_idx[batch].item<uint8_t>();
    std::vector<at::Tensor> chosen;
    for (int64_t beam = 0; beam < kBeams; ++beam) {
      chosen.push_back(columns.select(0, continued(packed, beam)).clone());
    }
    for (int64_t beam = 0; beam < kBeams; ++beam) {
      columns.select(0, beam).copy_(chosen[static_cast<size_t>(beam)]);
    }
  }
  return self;
}

at::Tensor kv_reorder(
    const at::Tensor& self, const at::Tensor& start, const at::Tensor& end,
    const at::Tensor& beam_idx) {
  return kv_reorder_(self.clone(), start, end, beam_idx);
}

at::Tensor traced_kv_reorder_(
    at::Tensor self, const at::Tensor& start, const at::Tensor& end, const at::Tensor& beam_idx) {
  static const auto reorder = vendor_operator<decltype(kv_reorder)>("kv_reorder");
  return written(self, reorder.call(self, start, end, beam_idx));
}

at::Tensor in_place_interleave(const at::Tensor& self) {
  TORCH_CHECK(self.dim() == 4, "Input has to be a 4D tensor.");
  const c10::SymInt batch = self.sym_size(0);
  TORCH_CHECK(batch % kBeams == 0, "Batch size has to be a multiple of 4.");
  std::vector<c10::SymInt> sizes = self.sym_sizes().vec();
  sizes[0] = batch / kBeams;
  const at::Tensor kept = self.narrow_symint(0, 0, sizes[0]).unsqueeze(1);
  sizes.insert(sizes.begin() + 1, kBeams);
  return kept.expand_symint(sizes).reshape_symint(self.sym_sizes()).clone(
      at::MemoryFormat::Contiguous);
}

at::Tensor in_place_interleave_(at::Tensor self) {
  return self.copy_(in_place_interleave(self));
}

at::Tensor traced_in_place_interleave_(at::Tensor self) {
  static const auto interleave =
      vendor_operator<decltype(in_place_interleave)>("in_place_interleave");
  return written(self, interleave.call(self));
}

const Operators kv_cache([](Operators& define) {
  const std::string reorder = "Tensor start, Tensor end, Tensor beam_idx) -> ";
  define("kv_reorder_(Tensor(a!) self, " + reorder + "(Tensor(a!))", &kv_reorder_);
  define.in_eager_mode("kv_reorder(Tensor self, " + reorder + "Tensor", &kv_reorder);
  define("in_place_interleave_(Tensor(a!) self) -> (Tensor(a!))", &in_place_interleave_);
  define.in_eager_mode("in_place_interleave(Tensor self) -> Tensor", &in_place_interleave);
  define.compiled_as("kv_reorder_", &traced_kv_reorder_);
  define.compiled_as("in_place_interleave_", &traced_in_place_interleave_);
});

}  // namespace
}  // namespace hpu::custom
