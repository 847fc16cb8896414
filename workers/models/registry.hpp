// The models one can name in an experiment file. No LibTorch here.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "workers/models/model.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

struct ModelRow {
  std::string_view name;      // as written in TOML
  std::string_view sentence;  // what it is
  std::string_view title;     // what its table [models.<name>] is of; empty: it has no keys
  Model (*read)(Settings& table);
};
std::span<const ModelRow> models();

// Reads the tables [models.*] of the root, also those of models that are not chosen, so that an override such as
// training.model=cnn works. `chosen` may be null.
Model read_models(Settings& root, const ModelRow* chosen);

// LibTorch's, such as "1.13.0".
std::string torch_version();

}  // namespace syncopate
