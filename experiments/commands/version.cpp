#include <fmt/format.h>
#include <mpi.h>
#include <toml++/toml.h>

#include <array>
#include <boost/version.hpp>
#include <cctype>
#include <stdexcept>

#include "experiments/commands/listing.hpp"
#include "results/formats/build_info.hpp"
#include "results/formats/host.hpp"
#include "workers/models/registry.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/process/blas_kernel.hpp"

namespace syncopate {
namespace {

// The first line of what the MPI library says of itself; allowed before MPI_Init.
std::string mpi_version() {
  std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> text{};
  int length = 0;
  if (MPI_Get_library_version(text.data(), &length) != MPI_SUCCESS) return "unknown";
  const std::string version(text.data(), static_cast<std::size_t>(length));
  return version.substr(0, version.find_first_of("\n,"));
}

}  // namespace

std::string version_text() {
  const BuildInfo& build = build_info();
  const std::string commit = build.commit == "unknown" ? ""
                                                       : fmt::format(" ({}{})", build.commit.substr(0, 12),
                                                                     build.dirty.value_or(false) ? ", changed" : "");
  std::string result = fmt::format("Syncopate {}{}\n", build.version, commit);
  const auto add = [&](std::string_view part, std::string_view version) {
    result += fmt::format("{:<12}{}\n", part, version);
  };
  add("system", fmt::format("{}; {}", distribution_name(), operating_system()));
  add("compiler", build.compiler);
  try {
    load_torch();
    add("LibTorch", fmt::format("{} ({})", torch_version(), loaded_torch_file()));
    add("BLAS kernel", blas_kernel() + (blas_is_reference() ? " (the reference BLAS: slow)" : ""));
    add("kernels", torch_kernels());
  } catch (const std::runtime_error& fault) {  // a damaged installation: its version is what is asked for
    add("LibTorch", torch_version());
    add("BLAS kernel", fmt::format("unknown: {}", fault.what()));
    add("kernels", "unknown");
  }
  add("MPI", mpi_version());
  add("toml++", fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH));
  add("Boost", fmt::format("{}.{}.{}", BOOST_VERSION / 100000, BOOST_VERSION / 100 % 1000, BOOST_VERSION % 100));
  result.pop_back();
  return result;
}

}  // namespace syncopate
