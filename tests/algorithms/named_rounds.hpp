// The methods in rounds of local steps that have names, each as a set of choices (local_rounds.hpp).
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/co2.hpp"
#include "algorithms/local_sgd/cocod_sgd.hpp"
#include "algorithms/local_sgd/local_rounds.hpp"
#include "algorithms/local_sgd/overlap_local_sgd.hpp"
#include "algorithms/local_sgd/overlapped_diloco.hpp"
#include "algorithms/local_sgd/run_periods.hpp"

namespace syncopate {

class LocalSgd : public LocalRounds {
 public:
  LocalSgd(std::shared_ptr<const SyncPeriod> period, const StatePolicies& policies, const LocalPhase& phase = {})
      : LocalRounds({.steps = make_training_steps(phase), .period = std::move(period), .policies = policies}) {}
};

class OuterLocalSgd : public LocalRounds {
 public:
  OuterLocalSgd(std::shared_ptr<const SyncPeriod> period, OuterOptimizer outer, const StatePolicies& policies)
      : LocalRounds({.period = std::move(period), .outer = std::move(outer), .policies = policies}) {}
};

class AdaComm : public LocalRounds {
 public:
  explicit AdaComm(const LossPeriodOptions& options, const StatePolicies& policies = {})
      : LocalRounds({.period = make_loss_period(options), .policies = policies}) {}
};

class DesLoc : public LocalRounds {
 public:
  DesLoc(Step parameters, const std::array<Step, 2>& moments)
      : LocalRounds({.period = std::make_shared<MomentSchedule>(parameters, moments)}) {}
};

class DropLocalSgd : public LocalRounds {
 public:
  DropLocalSgd(std::shared_ptr<const SyncPeriod> period, const DropOptions& drop, const StatePolicies& policies = {})
      : LocalRounds({.steps = make_dropping_steps(drop), .period = std::move(period), .policies = policies}) {}
};

class FedProx : public LocalRounds {
 public:
  FedProx(std::shared_ptr<const SyncPeriod> period, double mu)
      : LocalRounds({.steps = make_proximal_steps(mu), .period = std::move(period)}) {}
};

class HierarchicalSgd : public LocalRounds {
 public:
  HierarchicalSgd(const GroupsOfRound& groups, std::shared_ptr<const SyncPeriod> period,
                  const StatePolicies& policies = {})
      : LocalRounds({.period = std::move(period), .groups = groups, .policies = policies}) {}
};

class PalSgd : public LocalRounds {
 public:
  PalSgd(std::shared_ptr<const SyncPeriod> period, OuterOptimizer outer, const PullOptions& pull,
         const StatePolicies& policies = {})
      : LocalRounds({.steps = make_pulling_steps(pull),
                     .period = std::move(period),
                     .outer = std::move(outer),
                     .policies = policies}) {}
};

class CocodSgd : public LocalRounds {
 public:
  CocodSgd(std::shared_ptr<const SyncPeriod> period, const StatePolicies& policies)
      : LocalRounds({.period = std::move(period), .late = make_cocod_rule(), .policies = policies}) {}
};

class OverlapLocalSgd : public LocalRounds {
 public:
  OverlapLocalSgd(std::shared_ptr<const SyncPeriod> period, const OverlapLocalOptions& options,
                  const StatePolicies& policies)
      : LocalRounds({.period = std::move(period), .late = make_anchor_rule(options), .policies = policies}) {}
};

struct OverlappedOuterOptions {
  enum class Update { delayed, eager };
  using Averaged = syncopate::Averaged;
  Update update = Update::eager;
  Averaged averaged = Averaged::differences;
};

class OverlappedOuter : public LocalRounds {
 public:
  OverlappedOuter(std::shared_ptr<const SyncPeriod> period, OuterOptimizer outer, const OverlappedOuterOptions& options,
                  const StatePolicies& policies)
      : LocalRounds({.period = std::move(period),
                     .late = options.update == OverlappedOuterOptions::Update::eager
                                 ? make_eager_rule()
                                 : make_delayed_rule(options.averaged),
                     .outer = std::move(outer),
                     .policies = policies}) {}
};

class StreamingDiloco : public LocalRounds {
 public:
  StreamingDiloco(std::shared_ptr<const SyncPeriod> period, OuterOptimizer outer, FragmentsOfRound fragments,
                  const StatePolicies& policies)
      : LocalRounds({.period = std::move(period),
                     .fragments = std::move(fragments),
                     .outer = std::move(outer),
                     .policies = policies}) {}
};

}  // namespace syncopate
