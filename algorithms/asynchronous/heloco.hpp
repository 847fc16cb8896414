// HeLoCo: asynchronous Local SGD with momentum look-ahead. Workers start at the model to which the server's momentum
// alone would move. A difference that disagrees with the momentum is turned towards it, tensor by tensor, before the
// server steps along it.
// Source:  Al Asif et al. 2026, "HeLoCo", arXiv 2606.00271; formulas and defaults by the authors' published script.
//   Delta = rho (start - end);  Delta <- corrected Delta, by tensor;  m <- mu m + (1 - mu) Delta;
//   Theta <- Theta - lr (mu m + Delta);  the worker receives Theta - lr mu m
//   With c = cos(Delta, m) and conf = |Delta| / (|Delta| + kappa |m|), for a tensor with
//     c >= c_ok:      Delta stays as it is.
//     0 <= c < c_ok:  Delta gets the direction of (1 - lam) Delta / |Delta| + lam m / |m|, and keeps its length;
//                     lam = min(1, k_d conf (c_ok - c) / (c_ok - c_bad))
//     c < 0:          Delta loses the share min(b_max, -k_s c conf) of its part along m.
// Shapes:  model, difference, momentum: (P,) flat float32; lengths and cosines by tensor, in double precision.
// Cost:    as async-local-sgd; the server also computes three norms and two combinations per difference.
// Differs: it is async-local-sgd with another server's step, other defaults (weight 1 / sqrt(N), inner moments reset in
//          each round), and its other options, such as steps by speed. The paper's formula is lam = k_d (1 - c) conf,
//          which jumps at c_ok. According to the code, the experiments used the form above, so that is the default.
//          The code leaves a tensor as it is if Delta or m is shorter than 1e-8. `staleness_exponent = 0.5` is the
//          code's other weight. Without a model only the times are simulated.
// Checks:  golden corrections; an independent event simulation; with c_ok = -1 it is look-ahead with the same hand-out;
//          with momentum 0 as well, each step is rho lr Delta.
#pragma once

#include <algorithm>
#include <cmath>

#include "algorithms/asynchronous/async_local_sgd.hpp"

namespace syncopate {

struct HelocoCorrection {
  enum class Turn {
    to_threshold,  // lam grows from 0 at c_ok, as in the code
    to_momentum,   // lam grows from 0 at c = 1, as in the paper
  };
  Turn turn = Turn::to_threshold;
  double agreement = 0.2;      // c_ok
  double opposition = -0.2;    // c_bad
  double turn_strength = 1;    // k_d
  double momentum_weight = 3;  // kappa
  double removal = 0.5;        // k_s
  double most_removed = 0.5;   // b_max

  // The corrected tensor is `own` x Delta + `momentum` x m.
  struct Parts {
    double own = 1;
    double momentum = 0;
  };
  // The arguments are |Delta|, |m| and |Delta - m|.
  Parts parts(double of_delta, double of_m, double of_gap) const {
    constexpr double shortest = 1e-8;
    constexpr double rounded_away = 1e-12;  // rounding of the lengths must not make a right angle obtuse
    if (of_delta < shortest || of_m < shortest) return {};
    const double product = (of_delta * of_delta + of_m * of_m - of_gap * of_gap) / 2;
    const double c = std::clamp(product / (of_delta * of_m), -1.0, 1.0);
    if (!(c < agreement)) return {};  // also if a length is NaN
    const double confidence = of_delta / (of_delta + momentum_weight * of_m + shortest);
    if (c < -rounded_away) return {1, std::min(-removal * c * confidence, most_removed) * -product / (of_m * of_m)};
    const double angle = turn == Turn::to_momentum ? 1 - c : (agreement - c) / (agreement - opposition);
    const double lam = std::min(turn_strength * angle * confidence, 1.0);
    const double length = std::sqrt((1 - lam) * (1 - lam) + lam * lam + 2 * lam * (1 - lam) * c);
    return {(1 - lam) / length, lam / length * of_delta / of_m};
  }

  ModelStatePtr operator()(const Server& server, const ModelStatePtr& delta, const ModelStatePtr& m) const {
    if (!m) return delta;
    const ModelStatePtr zero = server.combine({{0, delta}}, delta);
    const std::vector<double> deltas = server.distances(delta, zero);
    const std::vector<double> momenta = server.distances(m, zero);
    const std::vector<double> gaps = server.distances(delta, m);
    std::vector<double> shares, lengths;  // a Delta + b m = (a + b) ((1 - share) Delta + share m)
    for (std::size_t i = 0; i < deltas.size(); ++i) {
      const auto [own, momentum] = parts(deltas[i], momenta[i], gaps[i]);
      shares.push_back(momentum / (own + momentum));
      lengths.push_back(own + momentum);
    }
    const ModelStatePtr turned = server.combine(zero, server.combine(delta, m, shares), lengths);
    return server.combine({{1, turned}}, delta);  // with the normalisation statistics of the difference
  }
};

inline std::unique_ptr<Algorithm> make_heloco(Settings& settings, const AlgorithmContext& context) {
  const auto read_update = [&](const BudgetCheck&) {
    LookAhead options{.hand_out = LookAhead::HandOut::ahead};
    options.rate =
        settings.number({"rate", "How far the server steps along a difference (lr)."}, Range::finite_positive(), 0.7);
    options.momentum =
        settings.number({"momentum", "Share of the momentum that a step keeps (mu)."}, Range::below_one(), 0.9);
    HelocoCorrection correction;
    Settings table = settings.section({"correction", "How differences are corrected towards the momentum."});
    using Turn = HelocoCorrection::Turn;
    correction.turn =
        table.choice({"turn", "Whether a turn grows from the cosine `agreement` on, or from 1 (paper)."},
                     {{"to-threshold", Turn::to_threshold}, {"to-momentum", Turn::to_momentum}}, correction.turn);
    correction.agreement =
        table.number({"agreement", "Tensors with at least this cosine to the momentum are not corrected (c_ok)."},
                     Range::between(-1, 1), correction.agreement);
    correction.opposition =
        table.number({"opposition", "The cosine at which a tensor is turned fully towards the momentum (c_bad)."},
                     Range::between(-1, 1), correction.opposition);
    if (correction.agreement >= 0 && correction.opposition >= correction.agreement)
      table.fault("opposition", "must be below agreement");
    correction.turn_strength = table.number({"turn_strength", "Factor of the turn (k_d)."}, Range::finite_from_zero(),
                                            correction.turn_strength);
    correction.momentum_weight = table.number(
        {"momentum_weight", "Weight of the momentum's length: larger weights give smaller corrections (kappa)."},
        Range::finite_from_zero(), correction.momentum_weight);
    correction.removal = table.number({"removal", "Factor of the share that is removed from an opposed tensor (k_s)."},
                                      Range::finite_from_zero(), correction.removal);
    correction.most_removed = table.number({"most_removed", "The largest share that is removed (b_max)."},
                                           Range::between(0, 1), correction.most_removed);
    options.correction = correction;
    return make_look_ahead_update(options);
  };
  const AsyncLocalOptions usual{.rounds = {.moments = StatePolicy::reset}, .weight = {.by_workers = true}};
  return read_async_local(settings, context, usual, read_update);
}

}  // namespace syncopate
