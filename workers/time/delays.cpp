#include "workers/delays/scoped_delay.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "workers/delays/bursts.hpp"
#include "workers/delays/limits.hpp"

namespace syncopate {
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
  std::size_t known_ahead(const RandomStream& stream, std::uint32_t first, std::size_t most) const override {
    if (scope_ != DelayScope::micro_batch || !concerns(stream.worker)) return most;
    const RandomStream own = of_group(stream);
    return bursts_ && !bursts_->is_on(of_bursts(own)) ? most : process_->known_ahead(own, first, most);
  }
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
  // B X with B = 1 in a burst, else 0, independent of X.
  StepLaw in_bursts(const StepLaw& law) const {
    const double p = share();
    if (p == 1) return law;
    return {p * law.mean_s, p * law.variance_s2 + p * (1 - p) * law.mean_s * law.mean_s};
  }

  std::shared_ptr<const DelayProcess> process_;
  DelayScope scope_;
  int group_size_;
  std::vector<bool> concerned_;  // empty: everybody
  std::optional<Bursts> bursts_;
};

}  // namespace

std::shared_ptr<const DelayProcess> scoped_delay(std::shared_ptr<const DelayProcess> process, DelayReach reach) {
  if (reach.everything()) return process;
  return std::make_shared<ScopedDelay>(std::move(process), reach);
}

// What is absent is left out of the resolved configuration.
DelayReach read_delay_reach(Settings& settings, int workers, bool follows_steps) {
  constexpr Range lengths = Range::between(1, 1e6);
  DelayReach reach{.cluster_size = workers};
  if (settings.has("scope")) {
    const Key scope{"scope",
                    "A draw for each micro-batch, a step's first, all of a step alike, or all of the run alike.", "",
                    "\"micro-batch\""};
    const auto written = settings.choice<DelayScope>(scope, {{"micro-batch", DelayScope::micro_batch},
                                                             {"step", DelayScope::step},
                                                             {"whole-step", DelayScope::whole_step},
                                                             {"worker", DelayScope::worker}});
    reach.scope = written.value_or(reach.scope);
    if (written == DelayScope::worker && follows_steps)
      settings.fault("scope",
                     "must be \"micro-batch\", \"step\" or \"whole-step\": this kind changes from step to step");
  }
  const Key group_size{"group_size", "Ranks 0 to group_size - 1, and so on, share their draws: a server, a rack.", "",
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
      settings.fault("workers", fmt::format("must name each worker once; {} stands there more often", *twice));
    if (reach.workers.empty() && settings.faults_so_far() == faults)
      settings.fault("workers", "must name at least one worker; left out, the delay concerns all");
  }
  if (settings.has("bursts")) {
    Settings bursts = settings.section({"bursts", "The delay comes in bursts, of each worker or group by itself."});
    reach.bursts = {.mean_on_steps = bursts.number({"mean_on_steps", "Mean length of a burst.", "steps"}, lengths),
                    .mean_off_steps = bursts.number({"mean_off_steps", "Mean time between two.", "steps"}, lengths)};
  }
  return reach;
}

}  // namespace syncopate
