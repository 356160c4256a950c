#include "memory/memory.h"

#include "memory/block.h"

namespace hpu {
namespace {

/// The range of graphs whose results were lost because of a fork.
struct Lost {
  uint64_t first = UINT64_MAX;
  uint64_t last = 0;
  std::shared_ptr<const std::string> why{};
};

auto* lost = new Lost;

}  // namespace

std::shared_ptr<const std::string>& failure_of(Block& block) {
  if (block.mark.written >= lost->first && block.mark.written <= lost->last) {
    block.mark.written = 0;
    block.failure = lost->why;
  }
  return block.failure;
}

void fail(const at::Tensor& tensor, const std::shared_ptr<const std::string>& why) {
  if (Block* block = block_of(tensor.storage())) {
    block->failure = why;
  }
}

void free_memory(const c10::Storage& storage, const std::shared_ptr<const std::string>& why) {
  const Block* block = block_of(storage);
  if (block && block->twin) {
    auto* freed = new Block{nullptr, 0, block->narrow.load(), block->mark, block->number, why};
    c10::DataPtr nothing(nullptr, freed, &free_block, device());
    storage.unsafeGetStorageImpl()->set_data_ptr_noswap(std::move(nothing));
  }
}

std::shared_ptr<const std::string> failure_of(const c10::Storage& storage) {
  Block* block = block_of(storage);
  return block ? failure_of(*block) : nullptr;
}

void lose_writes(
    uint64_t first_graph, uint64_t last_graph, const std::shared_ptr<const std::string>& why) {
  lost = new Lost{first_graph, last_graph, why};
}

void clear_failure_if_overwritten(const at::Tensor& tensor) {
  if (failure_of(tensor.storage()) && tensor.is_non_overlapping_and_dense() &&
      tensor.nbytes() == tensor.storage().nbytes()) {
    clear_failure(tensor.storage());
  }
}

void clear_failure(const c10::Storage& storage) {
  if (Block* block = block_of(storage)) {
    failure_of(*block).reset();
  }
}

}  // namespace hpu
