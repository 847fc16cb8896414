// A fixture that plans objectives from settings as in an experiment file, and reports faults in them.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tests/workers/idx_files.hpp"
#include "workers/config/patch.hpp"
#include "workers/config/settings.hpp"
#include "workers/models/models.hpp"

namespace syncopate {

class PlannedObjective : public IdxFiles {
 protected:
  // Plans from overrides of an empty document. `report` then has the faults.
  ObjectivePlan plan(const std::vector<std::string>& keys) {
    TomlNode root;
    FaultList overriding;
    apply_command_line(root, keys, overriding);
    EXPECT_TRUE(overriding.empty()) << overriding.report();
    SettingsDocument document(root);
    Settings top = document.root();
    Settings training = top.section("training");
    auto result = plan_objective(training, top, {.seed = seed, .workers = workers, .micro_batches = micro_batches});
    report = document.check().report();
    return result;
  }

  std::uint64_t seed = 1;
  int workers = 4;
  int micro_batches = 2;
  std::string report;
};

}  // namespace syncopate
