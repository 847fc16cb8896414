// Dynamic backup workers, a rule modelled on DBW: synchronous SGD with a server that chooses in each step the number
// k of gradients to wait for, so that the expected gain per time is largest.
// Source:  after Xu, Neglia and Sebastianelli 2020, "Dynamic Backup Workers for Parallel Machine Learning" (DBW). Only
//          its abstract is known: each iteration's number follows from an estimated gain per time. The rest is ours.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: times in seconds on the server's clock.
// Cost:    per step N models down and up to N gradients up, P floats each. The server computes the norm of each
//          gradient, so the simulated cluster cannot run ahead of the arithmetic. If a step used a single gradient, the
//          server stores it while a worker may still compute another one of that version: N x P floats at most.
// Differs: the first step waits for all gradients. The spread of the gradients in a step then gives estimates of the
//          gradient's squared norm and variance. One gradient has no spread, so k would stay at 1 for ever once it is
//          1. Therefore the gradient of such a step is compared with the next one of its version, which arrives late.
//          The estimated arrival time of the k-th gradient includes late gradients. All estimates are moving means over
//          steps (`memory`). The gain is a bound (see best_gradients) with a given product of rate and smoothness. The
//          paper is said to estimate the gain from losses, and to wait for more gradients again when the loss rises.
//          Late work continues and is dropped on arrival; skipped samples and clipping are as in backup_workers.hpp.
//          With `compression`, norm and variance are those of the decoded gradients, with the compression's own noise.
// Checks:  with fewest = most it equals backup workers, to rounding; the arithmetic of the gain; it waits for more
//          gradients the noisier they are relative to their size, also after steps of one gradient.
#pragma once

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>
#include <span>

#include "algorithms/method/gradient_round.hpp"

namespace syncopate {

// Moments of workers' gradients: the squared norm of their expectation, and the variance of one gradient, summed over
// the parameters. Units: squared norms.
struct GradientMoments {
  double squared_norm = 0;
  double variance = 0;
};
// Estimates the moments, without bias except that neither can be below 0, from the mean squared norm of k gradients and
// the squared norm of their mean. None for k = 1, which has no information about the variance.
inline std::optional<GradientMoments> gradient_moments(double mean_squared_norm, double squared_norm_of_mean,
                                                       int gradients) {
  if (gradients < 2) return std::nullopt;
  const double k = gradients;
  const double variance = std::max(0.0, k / (k - 1) * (mean_squared_norm - squared_norm_of_mean));
  return GradientMoments{.squared_norm = std::max(0.0, squared_norm_of_mean - variance / k), .variance = variance};
}

// Returns the k >= 1 with the largest gain per time, or the number of all gradients if no k has a gain above 0.
// arrival_s[k - 1]: when the k-th gradient arrives. rate_times_smoothness: eta L, in (0, 2), the learning rate times
// the loss's smoothness. The gain is a lower bound for the decrease of the loss F in a step along the mean of k
// gradients of variance V: (eta - L eta^2 / 2) |grad F|^2 - (L eta^2 / 2) V / k.
inline int best_gradients(const GradientMoments& moments, double rate_times_smoothness,
                          std::span<const double> arrival_s) {
  const double noise_share = rate_times_smoothness / (2 - rate_times_smoothness);
  auto best = arrival_s.size();
  double best_gain_per_s = 0;
  for (std::size_t k = 1; k <= arrival_s.size(); ++k) {
    const double gain = moments.squared_norm - noise_share * moments.variance / static_cast<double>(k);
    const double gain_per_s = gain / arrival_s[k - 1];
    if (gain_per_s <= best_gain_per_s) continue;
    best_gain_per_s = gain_per_s;
    best = k;
  }
  return static_cast<int>(best);
}

// Estimates the spread of the gradients that workers computed at one version of the model. This needs the norm of each
// gradient and of their sum, so the server waits until these are computed.
class GradientSpread {
 public:
  void add(const Server& server, Gradient& gradient) {
    squared_norms_ += squared(server.norm(gradient) / server.micro_batches());
    sum_ += gradient;
    ++gradients_;
  }

  int gradients() const { return gradients_; }

  // None for a single gradient, which has no spread.
  std::optional<GradientMoments> moments(const Server& server) {
    if (gradients_ < 2) return std::nullopt;
    const double norm_of_mean = server.norm(sum_) / (static_cast<double>(gradients_) * server.micro_batches());
    return gradient_moments(squared_norms_ / gradients_, squared(norm_of_mean), gradients_);
  }

 private:
  static double squared(double value) { return value * value; }

  Gradient sum_{};
  double squared_norms_ = 0;
  int gradients_ = 0;
};

struct DynamicBackupOptions {
  int fewest = 1;                    // minimum number of gradients per step
  std::optional<int> most{};         // none: the number of workers
  double rate_times_smoothness = 1;  // eta L, in (0, 2)
  double memory = 0.9;               // weight of the old value in a moving mean, in [0, 1)
};

// A server's observations of workers' gradients, as moving means over steps: their moments, and the time from the
// start of a version to the arrival of its k-th gradient, even if the step has ended before.
class ObservedGradients {
 public:
  explicit ObservedGradients(const DynamicBackupOptions& options) : options_(options) {}

  void begin_version(Time now) { versions_.push_back({now}); }
  // Records the arrival of the next gradient of a version, which may be an old version.
  void take_arrival(Step of_version, Time now) {
    Version& version = versions_[static_cast<std::size_t>(of_version.value())];
    const double after_s = to_seconds(now - version.begun);
    if (version.arrived == arrival_s_.size()) arrival_s_.push_back(after_s);
    double& mean_s = arrival_s_[version.arrived++];
    mean_s = mixed(mean_s, after_s);
  }

  void take_moments(const std::optional<GradientMoments>& newest) {
    if (!newest) return;
    const GradientMoments before = has_moments_ ? moments_ : *newest;
    has_moments_ = true;
    moments_ = {.squared_norm = mixed(before.squared_norm, newest->squared_norm),
                .variance = mixed(before.variance, newest->variance)};
  }

  // The number of gradients that the next step waits for, with this many workers; the maximum if no moments are known.
  int wanted(int workers) const {
    const int most = std::min(options_.most.value_or(workers), workers), fewest = std::min(options_.fewest, most);
    if (!has_moments_) return most;
    std::vector<double> arrival_s(std::min(arrival_s_.size(), static_cast<std::size_t>(most)));
    std::partial_sum(arrival_s_.begin(), arrival_s_.begin() + std::ssize(arrival_s), arrival_s.begin(),
                     [](double earlier, double later) { return std::max(earlier, later); });
    return std::clamp(best_gradients(moments_, options_.rate_times_smoothness, arrival_s), fewest, most);
  }

 private:
  struct Version {
    Time begun;
    std::size_t arrived = 0;
  };
  double mixed(double mean, double newest) const { return options_.memory * mean + (1 - options_.memory) * newest; }

  DynamicBackupOptions options_;
  std::vector<Version> versions_;
  std::vector<double> arrival_s_;  // [k - 1]: mean arrival time of a version's k-th gradient, for each k seen so far
  GradientMoments moments_;
  bool has_moments_ = false;  // not an optional, of which GCC 12 wrongly warns that it may be uninitialized
};

class DynamicBackup : public FreshGradients {
 public:
  explicit DynamicBackup(const DynamicBackupOptions& options) : options_(options) {}

  void run(Worker& worker) const override { send_gradient_per_model(worker, LateWork::finish); }

  void serve(Server& server) const override {
    GradientRound round(server);
    ObservedGradients observed(options_);
    std::map<Step, GradientSpread> alone;    // versions whose step used one gradient, and of which no other has arrived
    ByRank<Step> version_of(server.size());  // version of the model that each worker computes with
    while (server.budget_left()) {
      observed.begin_version(server.now());
      GradientSpread spread;
      for (int needed = observed.wanted(server.workers_left()); round.gradients() < needed;) {
        server.send_model(Receivers::waiting);  // a late worker gets the newest model on arrival
        const auto message = server.receive();
        if (!message) {
          needed = std::min(needed, server.workers_left(round.givers()));
          continue;
        }
        observed.take_arrival(message->step, server.now());
        if (message->step == server.step()) {
          spread.add(server, message->gradient);
        } else if (const auto before = alone.find(message->step); before != alone.end()) {
          before->second.add(server, message->gradient);
          observed.take_moments(before->second.moments(server));
          alone.erase(before);
        }
        const bool counts = round.take(*message, {.maximum_staleness = 0});
        version_of[message->from] = server.step() + (counts ? 1 : 0);
      }
      if (round.gradients() == 0) return;  // all workers have left
      observed.take_moments(spread.moments(server));
      if (spread.gradients() == 1) alone[server.step()] = spread;
      round.step();
      std::erase_if(alone,
                    [&](const auto& one) { return std::ranges::find(version_of, one.first) == version_of.end(); });
    }
  }

  Traits traits() const override {
    Traits traits = FreshGradients::traits();
    traits.follows_values = true;
    traits.held.models = 1;
    return traits;
  }

 private:
  DynamicBackupOptions options_;
};

inline std::unique_ptr<Algorithm> make_dynamic_backup(Settings& settings, const AlgorithmContext& context) {
  DynamicBackupOptions options;
  options.fewest = static_cast<int>(settings.integer({"fewest", "How many gradients a step waits for at least."}, 1,
                                                     Stated(context.workers, "workers"), 1));
  options.most = settings.optional_integer({"most", "How many gradients a step waits for at most.", {}, "all workers'"},
                                           1, Stated(context.workers, "workers"));
  if (options.most && *options.most < options.fewest) settings.fault("most", "must be at least `fewest`");
  options.rate_times_smoothness = settings.number(
      {"rate_times_smoothness", "Learning rate times the loss's smoothness (eta L); larger: noise costs more."},
      Range{.low = 0, .high = 2, .low_open = true, .high_open = true}, options.rate_times_smoothness);
  options.memory = settings.number({"memory", "Weight of the old value in the moving means of observations."},
                                   Range::below_one(), options.memory);
  if (context.time_only)
    settings.fault("algorithm", "needs a model: the size and noise of gradients decide how many a step waits for");
  return std::make_unique<DynamicBackup>(options);
}

}  // namespace syncopate
