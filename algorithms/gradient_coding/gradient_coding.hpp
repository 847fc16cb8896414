// Gradient coding: synchronous SGD in which each worker computes several parts of a step's gradient, so that a server
// can form the gradient, or an estimate of it, without waiting for stragglers.
// Source:  Tandon, Lei, Dimakis, Karampatziakis 2017, "Gradient Coding" (fractional, cyclic, ignore-stragglers); Bitar,
//          Wootters, El Rouayheb 2020, "Stochastic Gradient Coding for Straggler Mitigation in Distributed Learning"
//          (stochastic; as we understand it, not confirmed in its text).
// Shapes:  gradient, parameters: (P,) flat float32; cyclic: messages of P doubles.   Units: threshold in seconds.
// Cost:    per step N models down, up to N messages up; s + 1 parts of M micro-batches per worker (stochastic: d on
//          average).
// Differs: part p has the samples that worker p has in synchronous SGD, new ones in each step. A step with a fractional
//          code ends once each group has answered. Late work continues and is dropped on arrival; late = "cancel" stops
//          it. With `threshold_s` a step ends after that time, but not before its first message. A micro-batch of a
//          step counts as kept once, and its copies count as dropped; a message with copies counts no time as
//          discarded.
// Checks:  a fractional code equals synchronous SGD bit for bit, whichever workers straggle, and a cyclic code up to
//          rounding, for every set of s stragglers; without a code the mean is over the workers that have answered; the
//          sum G of the parts' gradients g_i is unbiased with a stochastic code, and with independent placement its
//          variance is p / (1 - p) [(1/d - 1/N) sum |g_i|^2 + |G|^2 / N].
#pragma once

#include "algorithms/gradient_coding/codes.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

// The fate of a worker that is still computing when the next model arrives.
enum class LateWork {
  finish,  // it continues, and its message is dropped on arrival
  cancel,  // it stops: every new model goes to all
};

class CodedSgd : public Algorithm {
 public:
  // threshold: counted from the sending of the models; only for codes that are not exact.
  CodedSgd(GradientCode code, LateWork late, Duration threshold = longest_duration)
      : code_(std::move(code)), late_(late), threshold_(threshold) {}

  void run(Worker& worker) const override;
  // Throws RunFailure if so many workers have left that an exact code can no longer give the sum.
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1,
            .publishes_stepped_models = true,
            .held = {.models = 0, .moments = 0},
            .exchanged_whole = "coded gradients must cancel exactly"};
  }

 private:
  bool cancels() const { return late_ == LateWork::cancel; }
  std::optional<Gradient> coded_gradient(Worker& worker) const;

  GradientCode code_;
  LateWork late_;
  Duration threshold_;
};

std::unique_ptr<Algorithm> make_coded_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
