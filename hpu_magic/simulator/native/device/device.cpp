// The device's streams and events. Operations are complete when their calls return, so a stream is
// only a name and an event is only a point in time.
#include "calls/generator.h"
#include "calls/thread_modes.h"
#include "clock/clock.h"
#include "collectives/work.h"
#include "lazy/recorder.h"
#include "memory/card.h"
#include "memory/memory.h"
#include "threads/interpreter.h"

#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/HPUHooksInterface.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <new>

namespace hpu {
namespace {

thread_local c10::StreamId stream_id = 0;
std::atomic<c10::StreamId> last_stream_id{0};

c10::Stream stream_of(c10::StreamId id) {
  return c10::Stream(c10::Stream::UNSAFE, device(), id);
}

c10::Stream current_stream() {
  return stream_of(stream_id);
}

c10::Stream new_stream() {
  return stream_of(++last_stream_id);
}

/// In lazy mode, runs the recorded operations, unless a capture is active.
void run_recorded() {
  if (recorder::enabled() && !recorder::capturing()) {
    const WithoutGil released;
    recorder::flush(recorder::Cause::mark_step);
  }
}

struct Event {
  std::chrono::steady_clock::time_point recorded;
  clock::Moment on_card;
};

struct Guard final : c10::impl::DeviceGuardImplInterface {
  c10::DeviceType type() const override {
    return kDevice;
  }
  c10::Device exchangeDevice(c10::Device wanted) const override {
    run_backward_on_this_thread();
    card::choose(wanted.index());
    return device();
  }
  c10::Device getDevice() const override {
    return device();
  }
  void setDevice(c10::Device wanted) const override {
    card::choose(wanted.index());
  }
  void uncheckedSetDevice(c10::Device) const noexcept override {}
  c10::DeviceIndex deviceCount() const noexcept override {
    return 1;
  }

  c10::Stream getStream(c10::Device) const noexcept override {
    run_backward_on_this_thread();
    return current_stream();
  }
  c10::Stream getDefaultStream(c10::Device) const override {
    return stream_of(0);
  }
  c10::Stream getNewStream(c10::Device, int) const override {
    return new_stream();
  }
  c10::Stream getStreamFromGlobalPool(c10::Device, bool) const override {
    return new_stream();
  }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override {
    run_backward_on_this_thread();
    const auto previous = current_stream();
    stream_id = stream.id();
    return previous;
  }
  bool queryStream(const c10::Stream&) const override {
    return true;
  }
  void synchronizeStream(const c10::Stream&) const override {
    run_recorded();
    clock::wait();
  }
  void synchronizeDevice(const c10::DeviceIndex) const override {
    run_recorded();
    collectives::wait_for_all();
    clock::wait();
  }

  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag)
      const override {
    if (!*event) {
      *event = new Event;
    }
    run_recorded();
    auto& recorded = *static_cast<Event*>(*event);
    recorded.recorded = std::chrono::steady_clock::now();
    recorded.on_card = clock::end_of_work();
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override {
    return true;
  }
  void synchronizeEvent(void* event) const override {
    if (event) {
      clock::wait_until(static_cast<Event*>(event)->on_card);
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<Event*>(event);
  }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    TORCH_CHECK(
        start && end, "Both events must be recorded before calculating elapsed time.");
    const auto& first = *static_cast<Event*>(start);
    const auto& last = *static_cast<Event*>(end);
    TORCH_CHECK(
        first.on_card.run == last.on_card.run,
        "The card's clock was started or stopped between these two events, so the time between "
        "them is unknown; record both while the clock runs, or both while it is off.");
    if (first.on_card.run > 0) {
      return (last.on_card.seconds - first.on_card.seconds) * 1e3;
    }
    return std::chrono::duration<double, std::milli>(last.recorded - first.recorded).count();
  }
};

C10_REGISTER_GUARD_IMPL(HPU, Guard);

struct Hooks final : at::HPUHooksInterface {
  explicit Hooks(at::HPUHooksArgs) {}

  void init() const override {
    card::acquire();
  }
  bool hasHPU() const override {
    return true;
  }
  // These two functions are not marked override, because they were added in PyTorch 2.8.
  bool isBuilt() const {
    return true;
  }
  bool isAvailable() const {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return card::acquired();
  }
  c10::DeviceIndex deviceCount() const override {
    return 1;
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return 0;
  }
  void setCurrentDevice(c10::DeviceIndex index) const override {
    card::choose(index);
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    card::choose(index);
    return 0;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    return exchangeDevice(index);
  }
  at::Device getDeviceFromPtr(void*) const override {
    return device();
  }
  bool isPinnedPtr(const void* address) const override {
    return is_pinned(address);
  }
  at::Allocator* getPinnedMemoryAllocator() const override {
    return pinned_allocator();
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return default_generator();
  }
  at::Generator getNewGenerator(c10::DeviceIndex) const override {
    return new_generator();
  }
};

// PyTorch looks for the name "HPUHooks", but the registry macro would register the class under its
// own name.
c10::Registerer<std::string, std::unique_ptr<at::HPUHooksInterface>, at::HPUHooksArgs> hooks(
    "HPUHooks", at::HPUHooksRegistry(), [](at::HPUHooksArgs arguments) {
      return std::unique_ptr<at::HPUHooksInterface>(new Hooks(arguments));
    });

}  // namespace

/// Removes CUDA as the process's accelerator on a machine without a GPU. Returns false if there is
/// a GPU. A PyTorch build with CUDA always has CUDA as its accelerator and does not allow another
/// one.
bool remove_cuda_accelerator() {
  auto& hooks = const_cast<at::CUDAHooksInterface&>(at::detail::getCUDAHooks());
  if (hooks.hasCUDA()) {
    return false;
  }
  // Overwrite the object that torch._C creates on import with the one that a build without CUDA
  // uses. Neither class has data members, only virtual functions.
  static_assert(sizeof(at::CUDAHooksInterface) == sizeof(void*));
  new (&hooks) at::CUDAHooksInterface;
  return true;
}

}  // namespace hpu
