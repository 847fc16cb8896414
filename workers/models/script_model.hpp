// The table [models.torchscript]: a module of one's own. How to save one: TORCHSCRIPT.md.
#pragma once

#include "workers/models/model.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

Model read_torchscript(Settings& table);

}  // namespace syncopate
