// Elastic averaging (EASGD; with momentum EAMSGD): workers train alone. Every `period` steps each worker moves towards
// a common centre model, and the centre towards the worker, by alpha times the difference of the two.
// Source:  Zhang, Choromanska, LeCun 2015, "Deep Learning with Elastic Averaging SGD".
// Shapes:  gradient, parameters, velocity, centre: (P,) flat float32.
// Cost:    synchronous: one all-reduce of P floats per `period` steps; asynchronous: per worker and exchange a request
//          without values, the centre down and the difference up, P floats each.
// Differs: asynchronous exchanges are those of the authors' code (mpiT): the difference is taken before the local step,
//          which runs while the difference is in flight, and exchanges begin with step 0. The centre is evaluated. The
//          file's optimizer takes the local steps; with `momentum` (EAMSGD's delta) it must be plain SGD. If
//          differences are compressed, a worker moves by the whole difference, and its residual keeps the part that was
//          not sent (ours).
// Checks:  everything that workers subtract is added to the centre or is in residuals; the synchronous form against the
//          Jacobi iteration.
#pragma once

#include <limits>

#include "algorithms/method/algorithm.hpp"

namespace syncopate {

struct ElasticOptions {
  enum class Exchange {
    synchronous,   // all workers at once, from the models before the step (Jacobi form)
    asynchronous,  // each worker alone with a server, which holds the centre
  };
  Exchange exchange = Exchange::synchronous;
  double alpha = 0;  // eta x rho: the share of its distance to the centre that a worker moves; the paper's beta / N
  Step period{1};    // tau
  double momentum = 0;
};

class ElasticAveraging : public Algorithm {
 public:
  explicit ElasticAveraging(const ElasticOptions& options) : options_(options) {}

  void run(Worker& worker) const override {
    is_asynchronous() ? run_asynchronously(worker) : run_synchronously(worker);
  }

  void serve(Server& server) const override {
    while (const auto message = server.receive_until_all_left()) {
      server.set_model(server.combine({{1, server.model()}, {1, message->model}}));
      server.record_steps(message->from, message->step);
      server.publish();
    }
  }

  Traits traits() const override {
    return {.servers = is_asynchronous() ? 1 : 0,
            .follows_clock = is_asynchronous(),
            .sends_gradients = is_asynchronous(),
            .held = {.models = options_.momentum > 0 ? 2.0 : 1.0, .moments = is_asynchronous() ? 1.0 : 2.0},
            .exchanged_whole =
                "workers keep different models after an average; with exchange = \"asynchronous\" they send "
                "differences, which can be compressed"};
  }

 private:
  static constexpr AveragePolicy parameters_alone{.buffers = StatePolicy::average};

  bool is_asynchronous() const { return options_.exchange == ElasticOptions::Exchange::asynchronous; }

  // x <- x - eta g(x); with momentum v <- delta v - eta g(x + delta v), x <- x + v. Returns whether an outage has
  // erased the worker's x during the step, which then starts from the centre and without v, like a new worker's first
  // step.
  bool local_step(Worker& worker, ModelStatePtr& velocity) const {
    ModelStatePtr x = worker.model();
    ResetOnOutage<bool> is_there(worker, true);
    if (velocity) worker.set_model(worker.combine({{1, x}, {options_.momentum, velocity}}, x));
    const Gradient gradient = worker.compute_step_gradient() / worker.micro_batches();
    if (!*is_there) x = worker.model();
    worker.descend(gradient);
    if (options_.momentum > 0) velocity = worker.combine({{1, worker.model()}, {-1, x}}, x);
    return !*is_there;
  }

  void run_synchronously(Worker& worker) const {
    const double alpha = options_.alpha, beta = worker.size() * options_.alpha;
    ModelStatePtr centre = worker.model(), velocity;
    while (worker.budget_left()) {
      const ModelStatePtr x = worker.model();
      worker.average_model({.policy = parameters_alone});
      const ModelStatePtr mean = worker.model();
      worker.set_model(x);
      const ModelStatePtr before = std::exchange(centre, worker.combine({{1 - beta, centre}, {beta, mean}}, mean));
      worker.declare_newest(centre);
      if (!local_step(worker, velocity))
        worker.set_model(worker.combine({{1, worker.model()}, {-alpha, x}, {alpha, before}}, x));
      worker.publish(centre);
      for (Step done = 1; done < options_.period && worker.budget_left(BudgetView::local); ++done)
        local_step(worker, velocity);
    }
    worker.barrier();  // so that the steps since the last exchange get a row of steps.csv, too
    worker.publish(centre);
  }

  void run_asynchronously(Worker& worker) const {
    const double alpha = options_.alpha;
    ModelStatePtr velocity;
    while (worker.budget_left()) {
      ModelStatePtr difference;
      const bool exchanges = worker.step().value() % options_.period.value() == 0;
      if (exchanges) {
        worker.send(worker.server(), Message::request());
        const auto centre = worker.receive();
        if (!centre) return;
        difference = worker.combine({{alpha, worker.model()}, {-alpha, centre->model}});
        worker.send(worker.server(), Message::of_difference(worker.step(), difference));
      }
      const bool is_lost = local_step(worker, velocity);
      if (exchanges && !is_lost) worker.set_model(worker.combine({{1, worker.model()}, {-1, difference}}));
      worker.report_steps();
    }
  }

  ElasticOptions options_;
};

inline std::unique_ptr<Algorithm> make_elastic_averaging(Settings& settings, const AlgorithmContext& context) {
  using Exchange = ElasticOptions::Exchange;
  ElasticOptions options;
  options.exchange = settings.choice(
      {"exchange", "Whether all workers exchange with the centre together, or each worker separately with a server."},
      {{"synchronous", Exchange::synchronous}, {"asynchronous", Exchange::asynchronous}}, options.exchange);
  // With a beta above 1 the synchronous centre would overshoot the mean of the workers' models.
  options.alpha =
      settings.number(
          {"beta", "How far the centre moves to the workers' mean, as a share of their distance (N alpha)."},
          Range{.low = 0, .high = 1, .low_open = true}) /
      context.workers;
  options.period = settings.integer({"period", "Local steps between two exchanges (tau).", "steps"}, 1,
                                    std::numeric_limits<std::int64_t>::max());
  options.momentum =
      settings.number({"momentum", "Nesterov momentum of the local steps. Above 0 this is EAMSGD, with 0 EASGD."},
                      Range::below_one(), 0.0);
  if (options.momentum > 0 && !context.plain_sgd)
    settings.fault("momentum",
                   "needs training.optimizer \"sgd\" without momentum and weight decay: EAMSGD has its own momentum");
  return std::make_unique<ElasticAveraging>(options);
}

}  // namespace syncopate
