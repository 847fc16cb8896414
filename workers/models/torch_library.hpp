// LibTorch is loaded when the first network is trained. Loading takes a third of a second, which commands and MPI ranks
// without a network save. This file does not use LibTorch, and no program links LibTorch.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "workers/data/sampler.hpp"
#include "workers/models/device.hpp"
#include "workers/models/network.hpp"
#include "workers/models/script_model.hpp"
#include "workers/training/objective.hpp"
#include "workers/training/optimizers.hpp"

namespace syncopate {

// Loads the library next to the program, once, and restricts BLAS to one thread. Any thread may call it. Throws
// std::runtime_error.
void load_torch();
bool torch_is_loaded();
// The path of libtorch_cpu as found by the loader; empty before load_torch.
std::string loaded_torch_file();
// The kernels that LibTorch has chosen for this processor (torch_entry.cpp), and the name of the GPU if `device` is
// one. "none loaded" if LibTorch is not loaded.
std::string torch_kernels(const std::string& device = "cpu");
// Returns a GPU with its name, such as "cuda:0 (NVIDIA H200)" for "cuda", once LibTorch is loaded. Any other device is
// returned unchanged.
std::string torch_device(const std::string& device);

// Suppresses LibTorch's warnings, which are meant for authors of modules and would appear between lines of progress.
// Call it while there is only one thread. Users see the warnings if they set $GLOG_minloglevel or $TORCH_CPP_LOG_LEVEL.
void silence_torch_warnings();

// The arguments of a TorchObjective (torch_objective.hpp).
struct TorchRequest {
  const Network& network;
  std::shared_ptr<const Dataset> dataset;
  const SamplerOptions& sampling;
  std::int64_t chunk_samples;
  double label_smoothing;
  double mixup;
  Arithmetic arithmetic{};
};

// Creates a TorchObjective. Loads the library first.
std::shared_ptr<const Objective> make_torch_objective(const TorchRequest& request);

// Returns why this machine's LibTorch does not support `arithmetic`, as the end of a sentence; empty: it does. Loads
// the library first, and CUDA's part of LibTorch for a GPU.
std::string why_no_arithmetic(const Arithmetic& arithmetic);
// The GPUs of this machine, such as "cuda:0 (NVIDIA H200)", or why LibTorch has none. Loads the library first.
std::string gpus_of_torch();

// The functions that the library provides to the program.
struct TorchFunctions {
  std::shared_ptr<const Objective> (*make_objective)(const TorchRequest& request);
  decltype(script_network)* load_script;
  Orthogonalise orthogonalise;   // orthogonalise_by_torch (matrix_steps.hpp)
  PowerIteration iterate_power;  // iterate_power_by_torch
  std::string (*kernels)();
  std::string (*why_no_arithmetic)(const Arithmetic& arithmetic);
  std::string (*name_of_device)(const std::string& device);
};
// The type of the only function that the library exports, and its name.
using TorchEntry = void (*)(bool (*interrupted)(), TorchFunctions& functions);
inline constexpr const char* torch_entry_name = "syncopate_torch_functions";

// Loads the library first.
const TorchFunctions& torch_functions();

}  // namespace syncopate
