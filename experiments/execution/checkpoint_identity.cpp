#include "experiments/execution/checkpoint_identity.hpp"

#include <fmt/format.h>

#include <string>

#include "results/formats/build_info.hpp"
#include "results/formats/host.hpp"
#include "results/run/results_version.hpp"
#include "workers/files/content_hash.hpp"
#include "workers/files/own_file.hpp"
#include "workers/models/registry.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/process/blas_kernel.hpp"

namespace syncopate {
namespace {

// What a run starts at is the end of another one, which its configuration only describes.
std::string start_of(const Run& run) {
  if (!run.training.start) return "the model's own";
  const auto hash = [](const std::vector<float>& values) {
    return content_hash({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)});
  };
  return hash(run.training.start->parameters) + hash(run.training.start->buffers);
}

// A commit says what a program computes, unless there are changes to it.
std::string program() {
  const BuildInfo& build = build_info();
  static const std::string changes =
      build.dirty.value_or(true) ? " with changes " + content_hash(read_file("/proc/self/exe", any_size).value_or(""))
                                 : std::string();
  return fmt::format("Syncopate {} of commit {}{}, results version {}", build.version, build.commit, changes,
                     results_version);
}

// Another BLAS than OpenBLAS does not say which kernels it takes: that is a matter of the processor.
std::string kernel_of_blas() {
  if (!torch_is_loaded()) return "none loaded";
  if (blas_is_reference()) return "the reference BLAS";
  return blas_says_its_kernel() ? blas_kernel() : fmt::format("{}, on {}", blas_kernel(), processor_name());
}

}  // namespace

CheckpointIdentity checkpoint_identity(const Run& run, const CheckpointIdentity& besides, bool is_common) {
  CheckpointIdentity identity{{"run", run.hash},
                              {"program", program()},
                              {"compiler", build_info().compiler + " " + build_info().flags},
                              {"LibTorch", torch_is_loaded() ? torch_version() : "none loaded"},
                              {"start", start_of(run)},
                              {"kept model", run.recording.parameters || run.recording.samples ? "the last" : "none"}};
  identity.insert(identity.end(), besides.begin(), besides.end());
  constexpr const char* of_parts = "as each part says";
  identity.emplace_back("BLAS kernel", is_common ? of_parts : kernel_of_blas());
  identity.emplace_back("LibTorch's kernels", is_common ? of_parts : torch_kernels());
  return identity;
}

}  // namespace syncopate
