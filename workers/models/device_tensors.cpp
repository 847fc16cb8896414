#include "workers/models/device_tensors.hpp"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/version.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <string_view>

#include "workers/base/process.hpp"
#include "workers/models/forward.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {

namespace {

at::Device device_of(const std::string& name) { return name == "cpu:copy" ? at::Device(at::kCPU) : at::Device(name); }

// The driver's name of the GPU, because LibTorch names no device without CUDA's headers; empty if there is no driver.
std::string name_of_gpu(int number) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  if (!driver) return "";
  auto* const begin = reinterpret_cast<int (*)(unsigned)>(dlsym(driver, "cuInit"));
  auto* const device_of_number = reinterpret_cast<int (*)(int*, int)>(dlsym(driver, "cuDeviceGet"));
  auto* const name_of = reinterpret_cast<int (*)(char*, int, int)>(dlsym(driver, "cuDeviceGetName"));
  std::array<char, 256> name{};
  int device = 0;
  if (!begin || !device_of_number || !name_of || begin(0) != 0 || device_of_number(&device, number) != 0 ||
      name_of(name.data(), static_cast<int>(name.size()) - 1, device) != 0)
    return "";
  return name.data();
}

}  // namespace

std::string why_no_device(const std::string& device) {
  if (device.starts_with("cpu")) return "";
  const at::Device wanted = device_of(device);
  if (!c10::impl::hasDeviceGuardImpl(wanted.type()))
    return fmt::format("this LibTorch {} has no {}", TORCH_VERSION, wanted.is_cuda() ? "CUDA" : "MPS");
  const int devices = c10::impl::VirtualGuardImpl(wanted.type()).deviceCount();
  if (devices == 0) return fmt::format("LibTorch finds no {} device here", wanted.is_cuda() ? "CUDA" : "MPS");
  const int number = std::max<int>(wanted.index(), 0);
  if (number < devices) return "";
  return devices == 1 ? "LibTorch finds only \"cuda:0\" here"
                      : fmt::format("LibTorch finds only \"cuda:0\" to \"cuda:{}\" here", devices - 1);
}

std::string why_no_bfloat16(const std::string& device) {
  const Device place({.device = device,
                      .bfloat16 = true,
                      .deterministic = at::globalContext().deterministicAlgorithms()});  // leaves the switch as it is
  try {
    place.run([&] {
      const c10::AutoGradMode differentiates(true);
      const at::Tensor image = place.upload(at::ones({2, 8, 8, 8})), filter = place.upload(at::ones({8, 8, 3, 3}));
      const at::Tensor matrix = place.upload(at::ones({8, 8}));
      const std::vector<at::Tensor> parameters = {at::Tensor(filter).requires_grad_(),
                                                  at::Tensor(matrix).requires_grad_()};
      const at::Tensor outputs = place.outputs_of([&] {
        return at::linear(at::relu(at::conv2d(image, parameters[0], {}, 1, 1)).mean({2, 3}), parameters[1]);
      });
      gradients_of(outputs.sum(), parameters);
    });
    return "";
  } catch (const c10::Error& problem) {
    const std::string_view what = problem.what_without_backtrace();
    return fmt::format("LibTorch {} cannot compute in bfloat16 on this {}: {}", TORCH_VERSION,
                       device.starts_with("cpu") ? "processor" : "device", what.substr(0, what.find('\n')));
  }
}

std::string device_name_by_torch(const std::string& device) {
  const at::Device found = device_of(device);
  if (found.is_cpu()) return "";
  if (!found.is_cuda()) return device;
  const int number = std::max<int>(found.index(), 0);
  const std::string name = name_of_gpu(number);
  return fmt::format("cuda:{}{}", number, name.empty() ? "" : fmt::format(" ({})", name));
}

Device::Device(const Arithmetic& arithmetic) : arithmetic_(arithmetic), device_(device_of(arithmetic.device)) {
  if (device_.is_cpu()) return;
  if (device_.is_cuda() && !device_.has_index()) device_ = at::Device(at::kCUDA, 0);
  // These switches apply to LibTorch in the whole process. Without TF32, products in float32 have all bits. (Outside
  // convolutions TF32 is off by default.)
  at::globalContext().setAllowTF32CuDNN(false);
  at::globalContext().setDeterministicAlgorithms(arithmetic.deterministic, /*warn_only=*/false);
  at::globalContext().setDeterministicCuDNN(arithmetic.deterministic);
}

std::optional<c10::StreamGuard> Device::enter() const {
  use_one_thread();
  if (!device_.is_cuda()) return std::nullopt;
  thread_local std::map<c10::DeviceIndex, c10::Stream> own;  // by device
  auto found = own.find(device_.index());
  if (found == own.end())
    found = own.emplace(device_.index(), c10::impl::VirtualGuardImpl(at::kCUDA).getStreamFromGlobalPool(device_)).first;
  return std::optional<c10::StreamGuard>(std::in_place, found->second);
}

Device::Autocast::State Device::Autocast::exchange(at::DeviceType device, State state) {
  namespace autocast = at::autocast;
#if TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 4)
  const State earlier{autocast::is_autocast_enabled(device), autocast::get_autocast_dtype(device)};
  autocast::set_autocast_enabled(device, state.enabled);
  autocast::set_autocast_dtype(device, state.type);
#else
  const bool is_cpu = device == at::kCPU;
  const State earlier{is_cpu ? autocast::is_cpu_enabled() : autocast::is_enabled(),
                      is_cpu ? autocast::get_autocast_cpu_dtype() : autocast::get_autocast_gpu_dtype()};
  if (is_cpu) {
    autocast::set_cpu_enabled(state.enabled);
    autocast::set_autocast_cpu_dtype(state.type);
  } else {
    autocast::set_enabled(state.enabled);
    autocast::set_autocast_gpu_dtype(state.type);
  }
#endif
  return earlier;
}

Device::Autocast::Autocast(const Device& device)
    : type_(device.device_.type()), earlier_(exchange(type_, {true, at::kBFloat16})) {
  at::autocast::increment_nesting();
}

// The cache of rounded parameters belongs to one pass, because the next pass may have other parameters at the same
// address.
Device::Autocast::~Autocast() {
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  exchange(type_, earlier_);
}

bool Device::is_lack_of_memory(const c10::Error& problem) const {
  if (dynamic_cast<const c10::OutOfMemoryError*>(&problem)) return true;
  if (!copies()) return false;
  const std::string_view what = problem.what_without_backtrace();
  return std::ranges::any_of(std::array{"out of memory", "ALLOC_FAILED", "can't allocate memory"},
                             [&](const char* text) { return what.find(text) != what.npos; });
}

void Device::fail_for_memory(const char* what) const {
  const std::string_view text = what;
  throw RunFailure(fmt::format(
      "training.device = \"{}\": the device's memory does not suffice; lower training.device_batch{}, "
      "training.micro_batch_size, or --threads, because each thread has its own activations; {}",
      arithmetic_.device, arithmetic_.batch_samples ? fmt::format(" from {}", *arithmetic_.batch_samples) : "",
      text.substr(0, text.find('\n'))));
}

std::vector<at::Tensor> Device::parameters(const Network& network, const float* flat) const {
  return view_parameters(network, upload(flat_view(flat, network.parameter_floats())));
}

namespace {

// The owner of the parameters that this thread passes next.
thread_local std::shared_ptr<const void> announced;

bool are_same(const std::weak_ptr<const void>& a, const std::shared_ptr<const void>& b) {
  return !a.owner_before(b) && !b.owner_before(a);
}

}  // namespace

void Device::announce(std::shared_ptr<const void> owner) const { announced = std::move(owner); }

std::vector<at::Tensor> Device::shared_parameters(const Network& network, const float* flat) const {
  const std::shared_ptr<const void> owner = std::exchange(announced, nullptr);
  if (!copies() || !owner) return parameters(network, flat);
  // Held during the upload, so that a thread that needs the same state waits for it instead of copying it again.
  const std::lock_guard lock(mutex_);
  threads_.insert(std::this_thread::get_id());
  copies_.remove_if([](const Copy& copy) { return copy.owner.expired(); });
  auto found = std::ranges::find_if(copies_, [&](const Copy& copy) { return are_same(copy.owner, owner); });
  if (found == copies_.end()) {
    copies_.push_front({owner, upload(flat_view(flat, network.parameter_floats()))});
    found = copies_.begin();
    // Keeps one state per thread and the newest, because each thread may use a different state at the same time.
    if (copies_.size() > threads_.size() + 1) copies_.pop_back();
  }
  if (device_.is_cuda())  // the memory must not be reused while this thread's stream reads it
    found->flat.record_stream(c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device_));
  return view_parameters(network, found->flat);
}

std::vector<GradientSegment> Device::segments(const Network& network, std::vector<at::Tensor> gradients) const {
  if (copies()) {
    // One block of main memory, because a GPU copies asynchronously only into locked memory, which is costly to
    // allocate.
    const auto size = static_cast<std::int64_t>(network.parameter_floats());
    const at::Tensor block = at::empty({size}, at::TensorOptions(at::kFloat).pinned_memory(device_.is_cuda()));
    const c10::InferenceMode guard;
    const std::vector<at::Tensor> there = std::exchange(gradients, view_parameters(network, block));
    for (std::size_t p = 0; p < there.size(); ++p) gradients[p].copy_(there[p], /*non_blocking=*/true);
    if (device_.is_cuda()) c10::impl::VirtualGuardImpl(at::kCUDA).getStream(device_).synchronize();
  }
  std::vector<GradientSegment> segments;
  for (const auto p : network.flat_order()) {
    const Parameter& parameter = network.parameters()[p];
    const auto owner = std::make_shared<const at::Tensor>(std::move(gradients[p]));
    segments.push_back(
        {.offset = parameter.offset, .size = parameter.size, .data = owner->data_ptr<float>(), .owner = owner});
  }
  return segments;
}

DeviceVector::DeviceVector(const Device& device, const Network& network, Of of, float* host)
    : device_(device),
      host_(host),
      flat_(
          device.upload(flat_view(host, of == Of::parameters ? network.parameter_floats() : network.buffer_floats()))),
      views_(of == Of::parameters ? view_parameters(network, flat_) : view_buffers(network, flat_)) {}

}  // namespace syncopate
