// Eager SGD: all-reduces that take place when the first worker arrives (solo), or a random one that all have agreed
// on (majority: on average half have arrived). Who is not there contributes nothing, and catches up later.
// Source:  Li et al. 2020, "Taming Unbalanced Training Workloads in Deep Learning with Partial Collective Operations".
// Shapes:  gradient, parameters: (P,) flat float32.
// Cost:    one all-reduce of P floats per step, whoever takes part.
// Differs: the mean is over all N workers: one that contributes nothing counts as zero. What becomes of a gradient
//          that comes too late is a choice: late = "accumulate" (as we understand the paper; not confirmed in its
//          text) adds it to the next contribution, late = "drop" is our reading of the released ResNet code. With
//          solo that code makes every 32nd round wait for all: `synchronous_every`.
// Checks:  every round synchronous equals synchronous SGD bit for bit; (N + 1) / 2 contributors on average
//          (majority); step times of solo under exponential times.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct EagerOptions {
  enum class Activation { solo, majority };
  Activation activation = Activation::solo;
  LateGradient late = LateGradient::accumulate;
  Step synchronous_every{0};  // 0: never
};

class EagerSgd : public Algorithm {
 public:
  explicit EagerSgd(const EagerOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  Forecast forecast(const PredictionInput&) const override {
    return Forecast::none("who is there when a round begins depends on who was late for those before");
  }

 private:
  Activation activation(const Worker& worker) const;

  EagerOptions options_;
};

std::unique_ptr<Algorithm> make_eager_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
