// Methods that average models in rounds, and compressions of their averages.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/algorithms/named_rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "tests/workers/compressions.hpp"

namespace syncopate {

inline CompressionOptions of(std::string_view kind, double ratio = 0.01) {
  return compression(kind, Compresses::averages, ratio);
}

using Methods = std::vector<std::pair<const char*, std::shared_ptr<Algorithm>>>;

// All methods that average models in rounds of this many steps.
inline Methods in_rounds(Step steps) {
  using Averaged = OverlappedOuterOptions::Averaged;
  using Update = OverlappedOuterOptions::Update;
  const auto period = [&] { return make_constant_period(steps); };
  const auto diloco = [] { return OuterOptimizer(make_diloco(0.7, 0.5)); };
  const auto heavy = [] { return OuterOptimizer(make_heavy_ball(0.8, 0.5, 1)); };
  const auto overlapped = [&](OuterOptimizer outer, Update update, Averaged averaged) {
    return std::make_shared<OverlappedOuter>(period(), std::move(outer), OverlappedOuterOptions{update, averaged},
                                             StatePolicies{});
  };
  return {{"local-sgd", std::make_shared<LocalSgd>(period(), StatePolicies{})},
          {"diloco", std::make_shared<OuterLocalSgd>(period(), diloco(), StatePolicies{})},
          {"slowmo", std::make_shared<OuterLocalSgd>(period(), OuterOptimizer(make_slowmo(1, 0.5)), StatePolicies{})},
          {"palsgd", std::make_shared<PalSgd>(period(), diloco(), PullOptions{.probability = 0.3})},
          {"cocod", std::make_shared<CocodSgd>(period(), StatePolicies{})},
          {"overlap", std::make_shared<OverlapLocalSgd>(period(), OverlapLocalOptions{.mixing = 0.6, .momentum = 0.4},
                                                        StatePolicies{})},
          {"eager", overlapped(diloco(), Update::eager, Averaged::differences)},
          {"delayed", overlapped(diloco(), Update::delayed, Averaged::differences)},
          {"co2", overlapped(heavy(), Update::delayed, Averaged::models)}};
}

inline std::vector<float> compressed(const SimulatedRun& setup, Algorithm& method, const CompressionOptions& options) {
  method.compress(options);
  auto parameters = setup.run(method).parameters;
  method.compress(std::nullopt);
  return parameters;
}

inline const std::string local_sgd = "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 3 }";

}  // namespace syncopate
