#include "algorithms/quorum/dynamic_backup.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

namespace syncopate {

namespace {

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

}  // namespace

void DynamicBackup::serve(Server& server) const {
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
    std::erase_if(alone, [&](const auto& one) { return std::ranges::find(version_of, one.first) == version_of.end(); });
  }
}

std::unique_ptr<Algorithm> make_dynamic_backup(Settings& settings, const AlgorithmContext& context) {
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

std::optional<GradientMoments> gradient_moments(double mean_squared_norm, double squared_norm_of_mean, int gradients) {
  if (gradients < 2) return std::nullopt;
  const double k = gradients;
  const double variance = std::max(0.0, k / (k - 1) * (mean_squared_norm - squared_norm_of_mean));
  return GradientMoments{.squared_norm = std::max(0.0, squared_norm_of_mean - variance / k), .variance = variance};
}

int best_gradients(const GradientMoments& moments, double rate_times_smoothness, std::span<const double> arrival_s) {
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

void ObservedGradients::take_arrival(Step of_version, Time now) {
  Version& version = versions_[static_cast<std::size_t>(of_version.value())];
  const double after_s = to_seconds(now - version.begun);
  if (version.arrived == arrival_s_.size()) arrival_s_.push_back(after_s);
  double& mean_s = arrival_s_[version.arrived++];
  mean_s = mixed(mean_s, after_s);
}

void ObservedGradients::take_moments(const std::optional<GradientMoments>& newest) {
  if (!newest) return;
  const GradientMoments before = moments_.value_or(*newest);
  moments_ = {.squared_norm = mixed(before.squared_norm, newest->squared_norm),
              .variance = mixed(before.variance, newest->variance)};
}

int ObservedGradients::wanted(int workers) const {
  const int most = std::min(options_.most.value_or(workers), workers), fewest = std::min(options_.fewest, most);
  if (!moments_) return most;
  std::vector<double> arrival_s(std::min(arrival_s_.size(), static_cast<std::size_t>(most)));
  std::partial_sum(arrival_s_.begin(), arrival_s_.begin() + std::ssize(arrival_s), arrival_s.begin(),
                   [](double earlier, double later) { return std::max(earlier, later); });
  return std::clamp(best_gradients(*moments_, options_.rate_times_smoothness, arrival_s), fewest, most);
}

}  // namespace syncopate
