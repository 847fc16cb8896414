#include <torch/version.h>

#include "workers/models/registry.hpp"

namespace syncopate {

std::string torch_version() { return TORCH_VERSION; }

}  // namespace syncopate
