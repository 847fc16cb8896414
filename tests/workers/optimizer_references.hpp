// Steps of optimizers in double precision, tensor by tensor: an independent implementation of the definitions.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <vector>

#include "workers/training/optimizers.hpp"

namespace syncopate::reference {

using Doubles = std::vector<double>;

struct State {
  Doubles theta;
  Doubles moments[2];  // empty before the first step, and after a reset
  int steps[2] = {};   // per moment: steps since it was last empty
};
using Step = std::function<void(State&, const std::vector<float>& gradient, double rate)>;

struct Tensor {
  std::size_t begin;
  std::size_t end;
  bool excluded;
};

inline double norm(const Doubles& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

inline Doubles part(const Doubles& values, const Tensor& tensor) {
  return {values.begin() + static_cast<std::ptrdiff_t>(tensor.begin),
          values.begin() + static_cast<std::ptrdiff_t>(tensor.end)};
}

inline void begin_step(State& state) {
  for (int i = 0; i < 2; ++i) {
    if (state.moments[i].empty()) state.steps[i] = 0;
    state.moments[i].resize(state.theta.size(), 0.0);
    ++state.steps[i];
  }
}

inline Doubles clipped(const std::vector<float>& gradient, double max_norm) {
  Doubles g(gradient.begin(), gradient.end());
  const double c = max_norm > 0 ? std::max(1.0, norm(g) / max_norm) : 1;
  for (double& value : g) value /= c;
  return g;
}

// The moment is the mean square itself, including its initial value.
inline Step rmsprop(const RmsPropOptions& o, const std::vector<Tensor>& tensors) {
  return [=](State& state, const std::vector<float>& gradient, double rate) {
    const std::size_t square = o.momentum > 0 ? 1 : 0;
    if (state.moments[square].empty()) state.moments[square].assign(state.theta.size(), o.mean_square_start);
    begin_step(state);
    for (const Tensor& tensor : tensors)
      for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
        const double g = gradient[i] + (tensor.excluded ? 0 : o.weight_decay.rate) * state.theta[i];
        double& ms = state.moments[square][i];
        ms += (1 - o.rho) * (g * g - ms);
        const bool inside = o.form == RmsPropForm::tensorflow;
        double update = inside ? rate * g / std::sqrt(ms + o.epsilon) : g / (std::sqrt(ms) + o.epsilon);
        if (o.momentum > 0) update = state.moments[0][i] = o.momentum * state.moments[0][i] + update;
        state.theta[i] -= inside ? update : rate * update;
      }
  };
}

inline Step lars(const LarsOptions& o, const std::vector<Tensor>& tensors) {
  return [=](State& state, const std::vector<float>& gradient, double rate) {
    begin_step(state);
    const Doubles all(gradient.begin(), gradient.end());
    for (const Tensor& tensor : tensors) {
      const double decay = tensor.excluded ? 0 : o.weight_decay.rate;
      const double w = norm(part(state.theta, tensor)), g = norm(part(all, tensor));
      double r = 1;
      if ((!tensor.excluded || o.trust == TrustScope::all) && w > 0 && g > 0)
        r = o.trust_coefficient * w / (g + decay * w + o.epsilon);
      for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
        const double d = r * (all[i] + decay * state.theta[i]);
        double& v = state.moments[0][i];
        const bool of_updates = o.momentum_of == MomentumOf::updates;
        v = o.momentum * v + (of_updates ? rate * d : d);
        state.theta[i] -= of_updates ? v : rate * v;
      }
    }
  };
}

inline Step lamb(const LambOptions& o, const std::vector<Tensor>& tensors) {
  return [=](State& state, const std::vector<float>& gradient, double rate) {
    begin_step(state);
    const Doubles all = clipped(gradient, o.max_norm);
    for (const Tensor& tensor : tensors) {
      const double decay = tensor.excluded ? 0 : o.weight_decay.rate;
      const bool l2 = o.weight_decay.form == DecayForm::coupled;
      Doubles u;
      for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
        const double g = all[i] + (l2 ? decay * state.theta[i] : 0);
        double &m = state.moments[0][i], &s = state.moments[1][i];
        m = o.beta1 * m + (o.averages_gradients ? 1 - o.beta1 : 1) * g;
        s = o.beta2 * s + (1 - o.beta2) * g * g;
        const double corrected = std::sqrt(s / (1 - std::pow(o.beta2, state.steps[1])));
        u.push_back(m / (1 - std::pow(o.beta1, state.steps[0])) / (corrected + o.epsilon) +
                    (l2 ? 0 : decay * state.theta[i]));
      }
      const double w = norm(part(state.theta, tensor)), length = norm(u);
      const bool scales = (decay != 0 || o.trust == TrustScope::all) && w > 0 && length > 0;
      const double ratio = scales ? std::max(o.ratio_min, std::min(w / length, o.ratio_max)) : 1;
      for (std::size_t i = tensor.begin; i < tensor.end; ++i) state.theta[i] -= rate * ratio * u[i - tensor.begin];
    }
  };
}

inline Step lans(const LansOptions& o, const std::vector<Tensor>& tensors) {
  return [=](State& state, const std::vector<float>& gradient, double rate) {
    begin_step(state);
    const Doubles all = clipped(gradient, o.max_norm);
    for (const Tensor& tensor : tensors) {
      const double decay = tensor.excluded ? 0 : o.weight_decay.rate;
      const double g = norm(part(all, tensor));
      Doubles r, c;
      for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
        const double h = g == 0 ? all[i] : all[i] / (g + o.epsilon);
        double &m = state.moments[0][i], &s = state.moments[1][i];
        m = o.beta1 * m + (1 - o.beta1) * h;
        s = o.beta2 * s + (1 - o.beta2) * h * h;
        const double d = std::sqrt(s / (1 - std::pow(o.beta2, state.steps[1]))) + o.epsilon;
        r.push_back(m / (1 - std::pow(o.beta1, state.steps[0])) / d + decay * state.theta[i]);
        c.push_back(h / d + decay * state.theta[i]);
      }
      const double w = norm(part(state.theta, tensor));
      const bool scales = o.trust == TrustScope::all || !tensor.excluded;
      const auto ratio = [&](const Doubles& of) { return scales && w > 0 && norm(of) > 0 ? w / norm(of) : 1; };
      const double of_r = ratio(r), of_c = ratio(c);
      for (std::size_t i = tensor.begin; i < tensor.end; ++i) {
        const std::size_t at = i - tensor.begin;
        state.theta[i] -= rate * (o.beta1 * of_r * r[at] + (1 - o.beta1) * of_c * c[at]);
      }
    }
  };
}

}  // namespace syncopate::reference
