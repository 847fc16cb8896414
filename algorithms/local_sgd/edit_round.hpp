// What EDiT's workers tell each other at the end of a round, before they average, and what follows from it for all.
// Cost:    an all-gather of 8 bytes per module and worker; of 32 more per worker where steps are told.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "algorithms/local_sgd/outer_optimizer.hpp"
#include "algorithms/local_sgd/pseudo_gradient_penalty.hpp"
#include "algorithms/local_sgd/state_policy.hpp"
#include "algorithms/local_sgd/sync_period.hpp"
#include "algorithms/local_sgd/timed_rounds.hpp"
#include "workers/lost_with_state.hpp"

namespace syncopate {

struct EditOptions {
  enum class Scope { tensor, model };
  Scope scope = Scope::tensor;       // what is weighed by itself: a module
  Scope clip_scope = Scope::tensor;  // what is clipped by itself
  PenaltyOptions penalty{};
  std::shared_ptr<const SyncPeriod> period{};  // EDiT; null: A-EDiT
  TimedRounds timed{};                         // of A-EDiT
  std::shared_ptr<const OuterOptimizer> outer{};
  StatePolicies state{};
  std::optional<int> tensors{};  // of the model, where that is not there; none: not known

  bool is_timed() const { return !period; }
  bool tells_steps() const { return is_timed() || penalty.step_share > 0; }
  // Numbers that each worker tells; none where the number of tensors is not known.
  std::optional<std::int64_t> told_numbers() const;
};

// What a worker has done in a round.
struct RoundWork {
  explicit RoundWork(const Worker& worker) : kept(worker) {}

  LostWithState<Step> kept;  // steps that its model is from
  Step passed{};             // steps gone by
  double rates = 0;          // sum of their learning rates
  double mean_rate() const { return passed > 0 ? rates / static_cast<double>(passed.value()) : 0; }
};

// What all know of it then.
struct RoundMeeting {
  Penalty penalty{};
  Step longest{};         // of all workers' steps gone by; 0 where they are not told
  double inner_rate = 0;  // mean over all steps; 0 likewise
  bool is_put_off = false;
};

// Each brings the norms of what its model differs from `last`, so that all weigh all alike. `before`: of the round
// before; null at first.
std::shared_ptr<const RoundMeeting> meet(Worker& worker, const EditOptions& options, const ModelStatePtr& last,
                                         RoundWork& work, const std::shared_ptr<const RoundMeeting>& before);

// The norm of what consists of parts with these.
double norm_of(const std::vector<double>& parts);

}  // namespace syncopate
