// Independent implementations, in double precision, of methods whose averages arrive one round late. Workers are pulled
// to their targets (PullObjective), rounds have two steps, and one parameter is computed at a time.
#pragma once

#include <cstddef>
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/algorithms/simulated_run.hpp"

namespace syncopate {

struct Pulled {
  static constexpr int period = 2;
  int workers = 3;
  int rounds = 4;
  std::vector<double> rates{};  // learning rates by step; empty: 0.1
  std::size_t coordinate = 0;
  std::pair<int, int> lost{-1, -1};  // worker and round whose first step an outage takes

  using Models = std::vector<double>;  // one number per worker

  double rate(int step) const { return rates.empty() ? 0.1 : rates.at(static_cast<std::size_t>(step)); }
  double mean_rate(int round) const {
    double sum = 0;
    for (int k = 0; k < period; ++k) sum += rate(round * period + k);
    return sum / period;
  }
  // The models after the steps of a round.
  Models trained(Models models, int round) const {
    for (int w = 0; w < workers; ++w)
      for (int k = 0; k < period; ++k) {
        if (k == 0 && lost == std::pair(w, round)) continue;
        const int step = round * period + k;
        double& theta = models[static_cast<std::size_t>(w)];
        theta -= rate(step) * (theta - PullObjective::target({Rank{w}, step, 0}, coordinate));
      }
    return models;
  }
  Models initial() const { return Models(static_cast<std::size_t>(workers), 1.0); }
};

inline double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}
inline std::vector<double> difference(std::vector<double> a, const std::vector<double>& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

inline double cocod_model(const Pulled& run) {
  Pulled::Models y = run.initial(), sent;
  for (int r = 0; r < run.rounds; ++r) {
    y = run.trained(y, r);
    if (r > 0) {
      const double came = mean(sent);
      for (std::size_t w = 0; w < y.size(); ++w) y[w] = came + (y[w] - sent[w]);
    }
    sent = y;
  }
  return mean(sent);
}

// The result of Overlap-Local-SGD. `scaled`: the momentum changes with the learning rate.
inline double overlap_anchor(const Pulled& run, double mixing, double momentum, bool scaled) {
  Pulled::Models y = run.initial(), v(y.size(), 0.0), sent;
  double z = 1;
  for (int r = 0; r < run.rounds; ++r) {
    y = run.trained(y, r);
    if (r > 0) z = mean(sent);
    const double kept = momentum * (scaled && r > 0 ? run.mean_rate(r) / run.mean_rate(r - 1) : 1);
    sent.assign(y.size(), 0.0);
    for (std::size_t w = 0; w < y.size(); ++w) {
      y[w] = (1 - mixing) * y[w] + mixing * z;
      v[w] = kept * v[w] + (y[w] - z);
      sent[w] = z + v[w];
    }
  }
  return mean(sent);
}

// An outer step: returns the next model from the last one, from the model that averaging would give, and from the
// learning rate.
using PulledOuter = std::function<double(double last, double average, double rate)>;

// `outer` has its own momentum: each call begins with a copy.
inline double delayed_model(const Pulled& run, PulledOuter outer, bool are_models) {
  double x = 1, late = 0;
  for (int r = 0; r < run.rounds; ++r) {
    const double begin = x, end = mean(run.trained(Pulled::Models(run.initial().size(), x), r));
    if (r > 0) x = outer(x, are_models ? late : x + late, run.mean_rate(r - 1));
    late = are_models ? end : end - begin;
  }
  return outer(x, are_models ? late : x + late, run.mean_rate(run.rounds - 1));
}

// One model per worker; `outers` has one rule per worker.
inline Pulled::Models eager_models(const Pulled& run, const std::vector<PulledOuter>& outers) {
  Pulled::Models x = run.initial(), before(x.size(), 0.0);
  for (int r = 0; r < run.rounds; ++r) {
    const Pulled::Models added = difference(run.trained(x, r), x);
    for (std::size_t w = 0; w < x.size(); ++w) {
      const auto n = static_cast<double>(x.size());
      double along = (r > 0 ? mean(before) : 0) - before[w] / n;
      along += r + 1 < run.rounds ? added[w] / n : mean(added);
      x[w] = outers[w](x[w], x[w] + along, run.mean_rate(r));
    }
    before = added;
  }
  return x;
}

}  // namespace syncopate
