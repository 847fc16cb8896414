// Asynchronous SGD: the server steps along each gradient on arrival, unless it is too old.
// Source:  Chen et al. 2016, Algorithms 1 and 2; the paper's reviewers asked for the cut-off by age. The limit in steps
//          is taken from TensorFlow's DropStaleGradientOptimizer.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: maximum_age in seconds, staleness in updates.
// Cost:    per gradient P floats up and P down; nobody waits.
// Differs: one server holds all parameters, so a read is consistent, and no update comes between a gradient's check and
//          its own update. A dropped gradient does not advance the version. A worker goes through its data by its own
//          count of gradients. Age counts from the sending of the model to the gradient's arrival. The table `average`
//          gives the paper's averaged parameters. Each worker clips its gradients before it sends them, as in the
//          paper. For the learning-rate schedule see staleness.hpp. Asynchrony acts like a momentum of about 1 - 1/N,
//          so the optimizer's own momentum should be smaller for larger N.
// Checks:  one worker equals serial SGD bit for bit; N equal workers have a mean staleness of N - 1; a gradient is kept
//          exactly if its staleness is at most the maximum.
#pragma once

#include <fmt/format.h>

#include <limits>

#include "algorithms/asynchronous/staleness.hpp"

namespace syncopate {

class AsyncSgd : public GradientPerModel {
 public:
  struct Options {
    std::optional<Step> maximum_staleness{};  // none: no gradient is dropped for its staleness
    Duration maximum_age = longest_duration;  // longest_duration: no gradient is dropped for its age
    UpdateRate rate{};
  };
  explicit AsyncSgd(const Options& options) : options_(options) {}

  // Throws RunFailure after very many successive gradients that were all too old, since a budget in steps would never
  // end.
  void serve(Server& server) const override {
    constexpr std::int64_t most_discarded_per_worker = 1000;  // in succession
    server.set_gradients_per_step(1);
    std::int64_t discarded_in_a_row = 0;
    server.send_model(Receivers::all);
    while (const auto message = server.receive_until_all_left()) {
      const bool is_used =
          step_along(server, *message, options_.rate.of_single(server, *message),
                     {.maximum_staleness = options_.maximum_staleness, .maximum_age = options_.maximum_age});
      discarded_in_a_row = is_used ? 0 : discarded_in_a_row + 1;
      if (discarded_in_a_row > most_discarded_per_worker * server.size())
        server.fail(fmt::format("the last {} gradients were all too old; raise maximum_age_s ({:g} s)",
                                discarded_in_a_row, to_seconds(options_.maximum_age)));
      if (!server.budget_left()) return;
      server.send_model(message->from);
    }
  }

  Traits traits() const override {
    Traits traits = GradientPerModel::traits();
    traits.rejects_gradients = options_.maximum_staleness || options_.maximum_age < longest_duration;
    return traits;
  }

 private:
  Options options_;
};

inline std::unique_ptr<Algorithm> make_async_sgd(Settings& settings, const AlgorithmContext&) {
  AsyncSgd::Options options;
  options.maximum_staleness = settings.optional_integer(
      {"maximum_staleness", "A gradient is dropped if its model had more updates before the gradient arrived.",
       "updates", "none is dropped"},
      0, std::numeric_limits<std::int64_t>::max());
  const double maximum_age_s =
      settings.number({"maximum_age_s", "A gradient is dropped if its model was sent more than this time ago.", "s"},
                      Range::positive(), std::numeric_limits<double>::infinity());
  options.maximum_age = from_seconds(maximum_age_s);
  options.rate = read_update_rate(settings);
  return std::make_unique<AsyncSgd>(options);
}

}  // namespace syncopate
