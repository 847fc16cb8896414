// What a method cannot do together with other parts of an experiment.
#pragma once

#include "experiments/sections/definition.hpp"
#include "workers/settings/settings.hpp"

namespace syncopate {

// Faults are collected by `root`.
void check_methods(Settings& root, const Definition& definition);

}  // namespace syncopate
