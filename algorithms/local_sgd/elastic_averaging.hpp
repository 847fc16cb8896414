// Elastic averaging (EASGD, with momentum EAMSGD): workers train alone and are pulled towards a centre, the
// centre towards them, by alpha times their distance every `period` steps.
// Source:  Zhang, Choromanska, LeCun 2015, "Deep Learning with Elastic Averaging SGD".
// Shapes:  gradient, parameters, velocity, centre: (P,) flat float32.
// Cost:    synchronous: one all-reduce of P floats per `period` steps; asynchronous: per worker and exchange a
//          request without values, the centre down and the difference up, P floats each.
// Differs: asynchronous as in the authors' code (mpiT): the difference is taken before the local step, which runs
//          while it travels, and exchanges begin with step 0. The centre is what is evaluated. The file's
//          optimizer takes the local step; with `momentum` (EAMSGD's delta) it must be plain SGD. Where differences are
//          compressed, a worker moves by the whole one, and has in its residual what has not arrived (ours).
// Checks:  what leaves the workers arrives at the centre, or is in residuals; the synchronous form against the Jacobi
//          iteration.
#pragma once

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct ElasticOptions {
  enum class Exchange {
    synchronous,   // all at once, everything from the values before the step (Jacobi form)
    asynchronous,  // each worker with a server that holds the centre
  };
  Exchange exchange = Exchange::synchronous;
  double alpha = 0;  // eta x rho: the part of its distance that a worker moves; N alpha is the paper's beta
  Step period{1};    // tau
  double momentum = 0;
};

class ElasticAveraging : public Algorithm {
 public:
  explicit ElasticAveraging(const ElasticOptions& options) : options_(options) {}

  void run(Worker& worker) const override;
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = is_asynchronous() ? 1 : 0,
            .follows_clock = is_asynchronous(),
            .sends_gradients = is_asynchronous(),
            .exchanged_whole =
                "workers keep models of their own after an average; with exchange = \"asynchronous\" they "
                "send differences, which can be"};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  bool is_asynchronous() const { return options_.exchange == ElasticOptions::Exchange::asynchronous; }
  bool local_step(Worker& worker, ModelStatePtr& velocity) const;
  void run_synchronously(Worker& worker) const;
  void run_asynchronously(Worker& worker) const;

  ElasticOptions options_;
};

std::unique_ptr<Algorithm> make_elastic_averaging(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
