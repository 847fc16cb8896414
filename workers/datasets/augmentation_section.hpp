// The table [training.augmentation], and whether it suits a data set.
#pragma once

#include <string_view>

#include "workers/datasets/augmentation.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

Augmentation read_augmentation(Settings& training);

// Faults where the data set's samples are nothing that could be changed so.
void check_augmentation(const Augmentation& augmentation, const DatasetSize& size, std::string_view dataset,
                        Settings& training);

}  // namespace syncopate
