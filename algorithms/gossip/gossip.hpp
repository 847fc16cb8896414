// Gossip: what methods without a server share: messages with models, workers that stop before others, evaluation, and
// recovery of a worker that loses its state. That worker continues from the last model that another worker has sent it
// (before the first message: the initial model), with fresh moments. It is as if the sender repeated its last message
// from a log; no time is charged for this, as for a lost average. None of the worker's steps count as dropped: their
// effect is in the models that it has sent.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Traits::exchanged_whole of the gossip methods.
inline constexpr std::string_view models_of_neighbours =
    "neighbours would have to keep copies of each other's models, and no source of this project says how";

class Gossip {
 public:
  explicit Gossip(Worker& worker, IndividualModels evaluated = IndividualModels::mean)
      : worker_(worker), evaluated_(evaluated) {
    declare_newest(worker.model());
  }

  // Waits for the next message of another worker. Returns null once that worker has stopped.
  ReceivedMessage receive_from(Rank from, Worker::CalledFrom at = Worker::CalledFrom::current());
  // The messages received so far, in order of arrival, from workers that have not stopped.
  std::vector<ReceivedMessage> receive_what_has_come(Worker::CalledFrom at = Worker::CalledFrom::current());
  // Whether a worker has stopped, as far as this one knows; true for itself, since no worker sends to itself.
  bool has_stopped(Rank worker) const {
    return worker == worker_.rank() || last_.contains(worker) || worker_.has_left(worker);
  }

  // The mean with these weights, and the sum of the weights.
  WeightedState mean(std::vector<WeightedState> terms) const;

  // Each worker calls this after each step. Reports the step, and publishes the worker's model with this weight in the
  // mean of all. After the last step call `stop`, too.
  void end_step(double weight = 1) {
    const ModelStatePtr others = others_newest_.lock();
    worker_.report_steps();
    if (others) declare_newest(others);  // not the model after this step, which no other worker has received
    if (worker_.budget_left()) worker_.publish(WorkerModel{.weight = weight, .evaluated = evaluated_});
  }

  struct Ending {
    double weight = 1;
    bool others_may_wait = false;  // they may wait for this worker's messages even after the last step of all
  };
  // Ends this worker's training. All send their models to worker 0, which publishes their weighted mean. This serves
  // the evaluation only, so these messages take no time on the clock (Message::Kind::last_model). Worker 0 leaves only
  // when it has all models, so it notifies `listeners`, which may wait for its next message. Workers that leave because
  // their own data are used up are not in the mean. If worker 0 leaves for this reason, no mean is published.
  void stop(std::span<const Rank> listeners, const Ending& how, Worker::CalledFrom at = Worker::CalledFrom::current());

 private:
  ReceivedMessage unless_last(ReceivedMessage message);
  void declare_newest(const ModelStatePtr& others) {
    worker_.declare_newest(others);
    others_newest_ = others;
  }
  void publish_mean(Message own, Worker::CalledFrom at);

  Worker& worker_;
  IndividualModels evaluated_;
  std::weak_ptr<const ModelState> others_newest_;  // the worker keeps it alive, but only if outages can erase its state
  std::map<Rank, Message> last_;                   // the last message of each worker that has stopped
};

// Reads the key `evaluated`: "average" (default) or "own".
IndividualModels read_individual_models(Settings& settings);

}  // namespace syncopate
