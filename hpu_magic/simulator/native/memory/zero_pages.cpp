#include "memory/zero_pages.h"

#include "memory/card.h"

#include <c10/core/CPUAllocator.h>

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace hpu {
namespace {

constexpr size_t kSmallestReturned = 1 << 20;
constexpr size_t kCheckedAfter = size_t{256} << 20;

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

struct Mapping {
  void* data;
  size_t bytes;
};

void unmap(void* context) {
  const auto* mapping = static_cast<Mapping*>(context);
  munmap(mapping->data, mapping->bytes);
  delete mapping;
}

/// Returns whether a storage's memory was allocated by PyTorch or by `lazy_pages`. Other memory may
/// belong to a file, whose contents would reappear after the pages are released.
bool is_anonymous(const at::Tensor& tensor) {
  const auto deleter = tensor.storage().data_ptr().get_deleter();
  return deleter == &unmap || deleter == c10::GetDefaultCPUAllocator()->raw_deleter() ||
      deleter == c10::GetCPUAllocator()->raw_deleter();
}

/// Returns the bytes of memory and swap space that processes can still use.
size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  size_t kibibytes;
  size_t available = 0;
  bool known = false;
  while (file >> name >> kibibytes) {
    if (name == "MemAvailable:" || name == "SwapFree:") {
      available += kibibytes << 10;
      known |= name == "MemAvailable:";
    }
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return known ? available : std::numeric_limits<size_t>::max();
}

/// Returns how many of the bytes that start at `first` are already in host memory.
size_t resident(char* first, size_t bytes) {
  constexpr size_t kChunk = 1 << 16;  // pages
  std::vector<unsigned char> states(kChunk);
  size_t pages = 0;
  for (size_t done = 0; done < bytes; done += kChunk * page_size()) {
    const size_t length = std::min(bytes - done, kChunk * page_size());
    if (mincore(first + done, length, states.data()) != 0) {
      return bytes;
    }
    const auto end = states.begin() + static_cast<ptrdiff_t>((length - 1) / page_size() + 1);
    pages += static_cast<size_t>(
        std::count_if(states.begin(), end, [](unsigned char state) { return state & 1; }));
  }
  return pages * page_size();
}

}  // namespace

bool has_memory(size_t bytes) {
  static std::atomic<size_t> unchecked{0};
  if (unchecked.fetch_add(bytes) + bytes < kCheckedAfter) {
    return true;
  }
  unchecked = 0;
  return available_memory() >= bytes + kCheckedAfter;
}

void require_pages(const at::Tensor& self) {
  const size_t bytes = self.storage().nbytes();
  if (self.nbytes() < kLazyPages || self.storage().data_ptr().get_deleter() != &unmap) {
    return;
  }
  const size_t required = self.nbytes() + kCheckedAfter;
  const size_t available = available_memory();
  if (required > available) {
    auto* const first = static_cast<char*>(self.storage().mutable_data());
    if (required > available + resident(first, bytes)) {
      card::host_out_of_memory(self.nbytes());
    }
  }
}

c10::DataPtr lazy_pages(size_t bytes) {
  void* data = mmap(
      nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (data == MAP_FAILED) {
    return {};
  }
  return {data, new Mapping{data, bytes}, &unmap, c10::Device(c10::kCPU)};
}

at::Tensor& write_zeros(at::Tensor& self) {
  if (!self.is_cpu() || self.nbytes() < kSmallestReturned ||
      !self.is_non_overlapping_and_dense() || !is_anonymous(self)) {
    return self.zero_();
  }
  auto* const first = static_cast<char*>(self.mutable_data_ptr());
  char* const last = first + self.nbytes();
  const uintptr_t page = page_size();
  auto* const from =
      reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(first) + page - 1) / page * page);
  auto* const to = reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(last) / page * page);
  if (madvise(from, static_cast<size_t>(to - from), MADV_DONTNEED) != 0) {
    return self.zero_();  // for example, because the pages are locked
  }
  std::memset(first, 0, static_cast<size_t>(from - first));
  std::memset(to, 0, static_cast<size_t>(last - to));
  return self;
}

}  // namespace hpu
