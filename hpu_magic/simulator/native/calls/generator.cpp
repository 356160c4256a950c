#include "calls/generator.h"

#include "memory/memory.h"

#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GeneratorImpl.h>

#include <atomic>
#include <mutex>

namespace hpu {
namespace {

std::atomic<void (*)()> settle_recorded{nullptr};
thread_local const at::Generator* in_trial = nullptr;

struct GeneratorImpl final : c10::GeneratorImpl {
  explicit GeneratorImpl(at::Generator generator)
      : c10::GeneratorImpl(hpu::device(), c10::DispatchKeySet(c10::DispatchKey::HPU)),
        host(std::move(generator)) {}

  static void settle() {
    if (auto* run = settle_recorded.load()) {
      run();
    }
  }

  void set_current_seed(uint64_t seed) override {
    settle();
    host.set_current_seed(seed);
  }
  void set_offset(uint64_t offset) override {
    host.set_offset(offset);
  }
  uint64_t get_offset() const override {
    return host.get_offset();
  }
  uint64_t current_seed() const override {
    return host.current_seed();
  }
  uint64_t seed() override {
    settle();
    return host.seed();
  }
  void set_state(const c10::TensorImpl& state) override {
    settle();
    host.unsafeGetGeneratorImpl()->set_state(state);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    settle();
    return host.unsafeGetGeneratorImpl()->get_state();
  }
  GeneratorImpl* clone_impl() const override {
    settle();
    std::lock_guard lock(host.mutex());
    return new GeneratorImpl(host.clone());
  }

  mutable at::Generator host;
};

at::Generator copy_of_cpu_default() {
  at::Generator cpu = at::detail::getDefaultCPUGenerator();
  std::lock_guard lock(cpu.mutex());
  return cpu.clone();
}

}  // namespace

const at::Generator& default_generator() {
  // Starts as the CPU's: both draw the same numbers until one of them is reseeded.
  static const at::Generator& generator =
      *new at::Generator(at::make_generator<GeneratorImpl>(copy_of_cpu_default()));
  return generator;
}

void settle_generators_by(void (*settle)()) {
  settle_recorded.store(settle);
}

at::Generator new_generator() {
  return at::make_generator<GeneratorImpl>(at::detail::createCPUGenerator());
}

DrawsInTrial::DrawsInTrial() : generator_(at::detail::createCPUGenerator()) {
  in_trial = &generator_;
}

DrawsInTrial::~DrawsInTrial() {
  in_trial = nullptr;
}

at::Generator device_generator(const at::Generator& generator) {
  if (generator.defined() && generator.device().is_cpu()) {
    uint32_t drawn = 0;
    {
      auto* cpu = at::check_generator<at::CPUGeneratorImpl>(generator);
      std::lock_guard lock(cpu->mutex_);
      drawn = cpu->random();
    }
    return at::make_generator<GeneratorImpl>(at::detail::createCPUGenerator(drawn));
  }
  const at::Generator& chosen = generator.defined() ? generator : default_generator();
  TORCH_CHECK(
      chosen.device().type() == kDevice,
      "Expected a 'hpu' or 'cpu' device type for generator but found '", chosen.device().type(),
      "'");
  return chosen;
}

at::Generator host_generator(const at::Generator& generator) {
  if (in_trial) {
    return *in_trial;
  }
  return static_cast<GeneratorImpl*>(device_generator(generator).unsafeGetGeneratorImpl())->host;
}

}  // namespace hpu
