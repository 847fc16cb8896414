// Asynchronous SGD: the server steps along each gradient as it comes, unless it has become too old.
// Source:  Chen et al. 2016, Algorithms 1 and 2; the cut-off by age is what its reviewers asked for.
//          The limit in steps is that of TensorFlow's DropStaleGradientOptimizer.
// Shapes:  gradient, parameters: (P,) flat float32.   Units: maximum_age in seconds, staleness in updates.
// Cost:    per gradient P floats up and P down; nobody waits for anybody.
// Differs: one server holds all parameters, so a read is consistent. A dropped gradient does not advance the
//          version; check and update are one. A worker goes through its data by its own count of gradients.
//          Age runs from the server's sending of the model to the arrival of the gradient, both ways included.
//          The paper's averaged parameters are evaluated where the table `average` asks for them. Gradients are clipped
//          as in the paper: by each worker, its own, before it sends it. Schedule: staleness_weight.hpp.
//          Asynchrony acts like momentum, about 1 - 1/N: the server's own should fall as N grows.
// Checks:  one worker equals serial SGD bit for bit; N equal workers have a mean staleness of N - 1; kept
//          exactly if staleness <= the maximum.
#pragma once

#include <optional>

#include "algorithms/asynchronous/staleness_weight.hpp"
#include "algorithms/method/algorithm.hpp"

namespace syncopate {

class AsyncSgd : public Algorithm {
 public:
  struct Options {
    std::optional<Step> maximum_staleness{};  // none: no gradient is dropped for its staleness
    Duration maximum_age = longest_duration;  // longest_duration: none for its age
    UpdateRate rate{};
  };
  explicit AsyncSgd(const Options& options) : options_(options) {}

  void run(Worker& worker) const override;
  // Throws RunFailure if for very long all gradients have been too old, because that does not change.
  void serve(Server& server) const override;
  Traits traits() const override {
    return {.servers = 1, .takes_data_in_turn = true, .sends_gradients = true, .rejects_gradients = drops()};
  }
  Forecast forecast(const PredictionInput& input) const override;

 private:
  bool drops() const { return options_.maximum_staleness || options_.maximum_age < longest_duration; }

  Options options_;
};

std::unique_ptr<Algorithm> make_async_sgd(Settings& settings, const AlgorithmContext& context);

}  // namespace syncopate
