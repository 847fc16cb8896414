// The data sets one can name in an experiment file.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "workers/datasets/dataset.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// A data set whose size is known; `load` reads or generates it, and throws DataFault for what only the contents show.
struct DatasetPlan {
  DatasetSize size;
  std::function<std::shared_ptr<const Dataset>()> load;
};

// Plans it, with the seed of generated data. Reads headers of files, and their contents for a digest; what is missing
// or wrong is a fault, and there is no plan. The table's Settings must still live.
using DatasetPlanner = std::function<std::optional<DatasetPlan>(std::uint64_t seed)>;

struct DatasetRow {
  std::string_view name;                    // as written in TOML
  std::string_view sentence;                // what it is
  std::string_view title;                   // what its table [datasets.<name>] is of
  DatasetPlanner (*read)(Settings& table);  // reads its keys, and no files
};
std::span<const DatasetRow> datasets();

// Reads the tables [datasets.*] of the root, also those of data sets that are not chosen.
DatasetPlanner read_datasets(Settings& root, const DatasetRow& chosen);

}  // namespace syncopate
