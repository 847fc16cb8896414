#include "workers/models/torch_kernels.hpp"

#include <ATen/Version.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <string_view>

namespace syncopate {
namespace {

// LibTorch 1.13 has no other function for it.
std::string capability_of_aten() {
  constexpr std::string_view before = "CPU capability usage: ";
  const std::string configuration = at::show_config();
  const std::size_t found = configuration.find(before);
  if (found == std::string::npos) return "unknown";
  const std::size_t begin = found + before.size();
  return configuration.substr(begin, configuration.find_first_of("\n,", begin) - begin);
}

// Empty where LibTorch has none, or hides it.
std::string instructions_of_onednn() {
  using Effective = int();
  using Name = const char*(int);
  auto* const effective = reinterpret_cast<Effective*>(dlsym(RTLD_DEFAULT, "dnnl_get_effective_cpu_isa"));
  auto* const name = reinterpret_cast<Name*>(dlsym(RTLD_DEFAULT, "dnnl_cpu_isa2str"));
  if (!effective || !name) return "";
  std::string_view text = name(effective());
  constexpr std::string_view prefix = "cpu_isa_";
  if (text.starts_with(prefix)) text.remove_prefix(prefix.size());
  return std::string(text);
}

}  // namespace

std::string kernels_of_torch() {
  const std::string onednn = instructions_of_onednn();
  return capability_of_aten() + (onednn.empty() ? "" : fmt::format(", oneDNN {}", onednn));
}

}  // namespace syncopate
