#include "workers/time/delays.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "workers/time/distributions.hpp"

namespace syncopate {

Bursts::Bursts(double mean_on_steps, double mean_off_steps, std::size_t chains) : memory_(chains) {
  assert(mean_on_steps >= 1 && mean_off_steps >= 1);
  share_ = mean_on_steps / (mean_on_steps + mean_off_steps);
  const double stay_on = 1 - 1 / mean_on_steps, turn_on = 1 / mean_off_steps;
  on_below_ = std::min(stay_on, turn_on);
  off_from_ = std::max(stay_on, turn_on);
  flips_ = stay_on < turn_on;
}

// Goes back from the stream's step to the last one at which the state is known without earlier steps.
bool Bursts::is_on(RandomStream stream) const {
  const Step::Rep step = stream.step.value();
  const auto chain = static_cast<std::size_t>(stream.worker.value);
  std::atomic<std::int64_t>* const memory = chain < memory_.size() ? &memory_[chain] : nullptr;
  const std::int64_t remembered = memory ? memory->load(std::memory_order_relaxed) : 0;
  bool changed = false;
  const auto starts_on = [&] {
    stream.step = 0;
    return stream.uniform(0) < share_;
  };
  const bool always_flips = on_below_ <= 0 && off_from_ >= 1;
  const auto known = [&](Step::Rep at, bool& state) {
    if (remembered > 0 && at == remembered / 2 - 1) return state = remembered % 2, true;
    if (at == 0) return state = starts_on(), true;
    if (always_flips) return state = starts_on() != (at % 2 == 1), true;
    stream.step = at;
    const double u = stream.uniform(0);
    state = u < on_below_;
    if (state || u >= off_from_) return true;
    changed ^= flips_;
    return false;
  };
  bool state = false;
  for (Step::Rep at = step; !known(at, state);) --at;
  state ^= changed;
  if (memory) memory->store(2 * (step + 1) + state, std::memory_order_relaxed);
  return state;
}

namespace {

class ScopedDelay final : public DelayProcess {
 public:
  ScopedDelay(std::shared_ptr<const DelayProcess> process, const DelayReach& reach)
      : process_(std::move(process)), scope_(reach.scope), group_size_(reach.group_size) {
    for (const int worker : reach.workers) {
      const auto index = static_cast<std::size_t>(worker);
      if (index >= concerned_.size()) concerned_.resize(index + 1);
      concerned_[index] = true;
    }
    const auto groups = static_cast<std::size_t>((reach.cluster_size + group_size_ - 1) / group_size_);
    if (reach.bursts) bursts_.emplace(reach.bursts->mean_on_steps, reach.bursts->mean_off_steps, groups);
  }

  void add(const RandomStream& stream, std::uint32_t first, std::span<double> added_s) const override {
    if (added_s.empty() || !concerns(stream.worker)) return;
    if (scope_ == DelayScope::step && first > 0) return;
    const RandomStream own = of_group(stream);
    if (bursts_ && !bursts_->is_on(of_bursts(own))) return;
    switch (scope_) {
      case DelayScope::micro_batch:
        return process_->add(own, first, added_s);
      case DelayScope::step:
        return process_->add(own, 0, added_s.first(1));
      case DelayScope::whole_step:
        return add_to_all(of_step(own), added_s);
      case DelayScope::worker:
        return add_to_all(of_run(own), added_s);
    }
  }

  double mean_s() const override { return share() * process_->mean_s(); }
  double variance_s2() const override { return in_bursts({process_->mean_s(), process_->variance_s2()}).variance_s2; }
  double minimum_s() const override {
    return bursts_ || scope_ == DelayScope::step ? std::min(process_->minimum_s(), 0.0) : process_->minimum_s();
  }

  StepLaw step_law(const RandomStream& stream, int micro_batches) const override {
    if (!concerns(stream.worker)) return {};
    const RandomStream own = of_group(stream);
    switch (scope_) {
      case DelayScope::micro_batch:
        return in_bursts(process_->step_law(own, micro_batches));
      case DelayScope::step:
        return in_bursts(process_->step_law(own, 1));
      case DelayScope::whole_step: {
        const StepLaw one = process_->step_law(own, 1);
        return in_bursts({micro_batches * one.mean_s, 1.0 * micro_batches * micro_batches * one.variance_s2});
      }
      case DelayScope::worker:
        return in_bursts({micro_batches * of_run(own), 0});
    }
    return {};
  }
  double shortest_s(Rank worker) const override { return concerns(worker) ? minimum_s() : 0; }
  bool can_run_out() const override { return process_->can_run_out(); }

 private:
  bool concerns(Rank worker) const {
    const auto index = static_cast<std::size_t>(worker.value);
    return concerned_.empty() || (index < concerned_.size() && concerned_[index]);
  }
  RandomStream of_group(RandomStream stream) const {
    stream.worker = Rank{stream.worker.value / group_size_};
    return stream;
  }
  static RandomStream of_bursts(RandomStream stream) {
    stream.purpose = Purpose::delay_burst;
    return stream;
  }
  static void add_to_all(double value_s, std::span<double> added_s) {
    for (double& sum_s : added_s) sum_s += value_s;
  }
  double of_step(const RandomStream& stream) const {
    double value_s = 0;
    process_->add(stream, 0, {&value_s, 1});
    return value_s;
  }
  double of_run(RandomStream stream) const {
    stream.purpose = Purpose::delay_of_run;
    stream.step = 0;
    return of_step(stream);
  }
  double share() const { return bursts_ ? bursts_->share() : 1; }
  // Mean and variance of B X, where X has `law`, and B is 1 in a burst and 0 elsewhere, independent of X.
  StepLaw in_bursts(const StepLaw& law) const {
    const double p = share();
    if (p == 1) return law;
    return {p * law.mean_s, p * law.variance_s2 + p * (1 - p) * law.mean_s * law.mean_s};
  }

  std::shared_ptr<const DelayProcess> process_;
  DelayScope scope_;
  int group_size_;
  std::vector<bool> concerned_;  // empty: all workers
  std::optional<Bursts> bursts_;
};

// Absent keys stay out of the resolved configuration. If `follows_steps`, a draw for the whole run would make no sense.
DelayReach read_delay_reach(Settings& settings, int workers, bool follows_steps) {
  constexpr Range lengths = Range::between(1, 1e6);
  DelayReach reach{.cluster_size = workers};
  if (settings.has("scope")) {
    const Key scope{"scope",
                    "One draw per micro-batch, per step (added to its first or to every micro-batch), or per run.", "",
                    "\"micro-batch\""};
    const auto written = settings.choice<DelayScope>(scope, {{"micro-batch", DelayScope::micro_batch},
                                                             {"step", DelayScope::step},
                                                             {"whole-step", DelayScope::whole_step},
                                                             {"worker", DelayScope::worker}});
    reach.scope = written.value_or(reach.scope);
    if (written == DelayScope::worker && follows_steps)
      settings.fault(
          "scope", "must be \"micro-batch\", \"step\" or \"whole-step\": this kind of delay changes from step to step");
  }
  const Key group_size{"group_size",
                       "Number of consecutive ranks that share their draws, like the workers of a server or rack.", "",
                       "1"};
  if (const auto size = settings.optional_integer(group_size, 1, std::numeric_limits<int>::max()))
    reach.group_size = static_cast<int>(*size);
  if (settings.has("workers")) {
    const Key concerned{"workers", "The workers that have the delay.", "", "all"};
    const Stated highest(workers > 0 ? workers - 1 : most_workers, "cluster.workers - 1");
    const std::size_t faults = settings.faults_so_far();
    for (const std::int64_t rank : settings.integers(concerned, 0, highest))
      reach.workers.push_back(static_cast<int>(rank));
    auto ranks = reach.workers;
    std::ranges::sort(ranks);
    if (const auto twice = std::ranges::adjacent_find(ranks); twice != ranks.end())
      settings.fault("workers", fmt::format("must name each worker only once; found {} more than once", *twice));
    if (reach.workers.empty() && settings.faults_so_far() == faults)
      settings.fault("workers", "must name at least one worker; leave it out for a delay of all workers");
  }
  if (settings.has("bursts")) {
    Settings bursts =
        settings.section({"bursts", "The delay occurs only in bursts, drawn separately for each worker or group."});
    reach.bursts = {.mean_on_steps = bursts.number({"mean_on_steps", "Mean length of a burst.", "steps"}, lengths),
                    .mean_off_steps = bursts.number(
                        {"mean_off_steps", "Mean length of the time between two bursts.", "steps"}, lengths)};
  }
  return reach;
}

// Reports faults if the trace has no rows for some workers, groups or micro-batches of the cluster.
void check_size_of_trace(Settings& settings, const DelayReach& reach, const DelayContext& context) {
  const TraceLimit& limit = context.traces->back();
  const int micro_batches = limit.trace->micro_batches();
  if (reach.scope == DelayScope::micro_batch && context.micro_batches > micro_batches)
    settings.fault("file",
                   fmt::format("the trace has {} micro-batches per step, fewer than cluster.micro_batches = {}; "
                               "lower that, or set scope = \"step\"",
                               micro_batches, context.micro_batches));
  const int last = reach.workers.empty() ? context.workers - 1 : std::ranges::max(reach.workers);
  if (last / reach.group_size < limit.workers) return;
  settings.fault("file",
                 fmt::format("the trace has no rows for {} {}; its number of workers is {}",
                             reach.group_size > 1 ? "group" : "worker", last / reach.group_size, limit.workers));
}

}  // namespace

std::shared_ptr<const DelayProcess> scoped_delay(std::shared_ptr<const DelayProcess> process, DelayReach reach) {
  if (reach.scope == DelayScope::micro_batch && reach.group_size == 1 && reach.workers.empty() && !reach.bursts)
    return process;
  return std::make_shared<ScopedDelay>(std::move(process), reach);
}

std::shared_ptr<const DelayProcess> make_delay(Settings& settings, DelayContext context) {
  const DelayRow* row = settings.row({"kind", "The distribution or recording that delays come from."}, delays());
  const Key unit{"unit", "Unit of the delay's quantities: seconds, or multiples of micro_batch_s."};
  if (settings.choice(unit, {{"seconds", false}, {"micro_batch", true}}, false)) context.unit_s = context.base_s;
  const std::size_t traces = context.traces ? context.traces->size() : 0;
  auto process = row ? row->make(settings, context) : constant_delay(0);
  const DelayReach reach = read_delay_reach(settings, context.workers, row && row->follows_steps);
  if (context.workers > 0 && context.traces && context.traces->size() > traces)
    check_size_of_trace(settings, reach, context);
  return scoped_delay(std::move(process), reach);
}

}  // namespace syncopate
