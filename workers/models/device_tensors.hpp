// The LibTorch side of device.hpp: copies of tensors on the device, and the precision, threads and streams of a
// computation. Only sources with LibTorch include it.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/StreamGuard.h>

#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "workers/models/device.hpp"
#include "workers/models/network.hpp"
#include "workers/training/objective.hpp"

namespace syncopate {

// Returns why LibTorch has no such device here, as the end of a sentence; empty: it has one.
std::string why_no_device(const std::string& device);
// Returns why LibTorch cannot compute networks in bfloat16 on this device; empty: it can. The device must exist.
std::string why_no_bfloat16(const std::string& device);
// The device's name and number for people, such as "cuda:0 (NVIDIA H200)"; empty for the processor.
std::string device_name_by_torch(const std::string& device);

// One device of an objective. Each thread of the pool computes in a stream of its own. Any thread may call the members.
class Device {
 public:
  // The device must exist (why_no_device).
  explicit Device(const Arithmetic& arithmetic);

  // Calls `compute` on this thread with one thread of LibTorch, in this thread's stream. A lack of the device's memory
  // becomes a RunFailure that says what to lower.
  template <typename Compute>
  auto run(Compute compute) const {
    const auto stream = enter();
    try {
      return compute();
    } catch (const c10::Error& problem) {
      if (!is_lack_of_memory(problem)) throw;
      fail_for_memory(problem.what_without_backtrace());
    }
  }

  // Calls `forward`, which returns the network's outputs, in the chosen precision. Returns them in single precision.
  template <typename Forward>
  at::Tensor outputs_of(Forward forward) const {
    if (!arithmetic_.bfloat16) return forward();
    const Autocast autocast(*this);
    return forward().to(at::kFloat);
  }

  // Whether tensors are copied; otherwise the following functions return views of the caller's memory.
  bool copies() const { return arithmetic_.copies(); }

  at::Tensor upload(const at::Tensor& host) const {
    return copies() && host.defined() ? host.to(device_, host.scalar_type(), /*non_blocking=*/false, /*copy=*/true)
                                      : host;
  }

  // The parameters `flat` (P,), one tensor per parameter in the network's order.
  std::vector<at::Tensor> parameters(const Network& network, const float* flat) const;
  // Like parameters(), but an announced state is copied only once, even if several threads use it. Do not call it in
  // inference mode, whose tensors cannot be differentiated later.
  std::vector<at::Tensor> shared_parameters(const Network& network, const float* flat) const;
  // Objective::next_parameters_belong_to.
  void announce(std::shared_ptr<const void> owner) const;

  // Gradients, one tensor per parameter in the network's order, as segments in main memory, in ascending order of
  // offset. They keep the memory alive.
  std::vector<GradientSegment> segments(const Network& network, std::vector<at::Tensor> gradients) const;

 private:
  // LibTorch's autocast, for this thread.
  class Autocast {
   public:
    explicit Autocast(const Device& device);
    ~Autocast();
    Autocast(const Autocast&) = delete;
    Autocast& operator=(const Autocast&) = delete;

   private:
    struct State {
      bool enabled;
      at::ScalarType type;
    };
    static State exchange(at::DeviceType device, State state);  // returns the earlier state

    at::DeviceType type_;
    State earlier_;
  };

  struct Copy {
    std::weak_ptr<const void> owner;
    at::Tensor flat;
  };

  // Limits LibTorch to one thread, and enters this thread's stream on a GPU; nullopt on the processor.
  std::optional<c10::StreamGuard> enter() const;
  // Whether the device lacks memory. Only LibTorch's own allocator for GPUs has an exception type for this. Libraries
  // (cuBLAS, cuDNN), locked memory and MPS report it in the text of the message.
  bool is_lack_of_memory(const c10::Error& problem) const;
  [[noreturn]] void fail_for_memory(const char* what) const;

  Arithmetic arithmetic_;
  at::Device device_;
  mutable std::mutex mutex_;
  mutable std::list<Copy> copies_;             // the latest states, the newest first
  mutable std::set<std::thread::id> threads_;  // those that have used shared_parameters()
};

// A flat vector in main memory that computations on the device read and change, as one tensor per part of the network.
// Unless the device copies, the tensors are views of the vector, which must outlive this object.
class DeviceVector {
 public:
  enum class Of { parameters, buffers };  // parameters or a sum of gradients; normalisation statistics
  DeviceVector(const Device& device, const Network& network, Of of, float* host);

  const std::vector<at::Tensor>& views() const { return views_; }
  // Copies the values back to main memory if the device copies.
  void return_values() const {
    if (device_.copies()) at::from_blob(host_, {flat_.numel()}, at::kFloat).copy_(flat_);
  }

 private:
  const Device& device_;
  float* host_;
  at::Tensor flat_;
  std::vector<at::Tensor> views_;
};

}  // namespace syncopate
