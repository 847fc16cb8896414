// Shared by methods without a server: messages with models, workers that stop before others, evaluation, and recovery
// of a worker that loses its state. Such a worker takes the model that another one sent it last (before the first
// message the initial model), with fresh moments. (A sender that logs its last message could send it again; no time is
// charged, as for a lost average.) None of its steps count as dropped: their effect is in the models that it has sent.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "workers/config/settings.hpp"
#include "workers/worker.hpp"

namespace syncopate {

// Traits::exchanged_whole for these methods.
inline constexpr std::string_view models_of_neighbours =
    "neighbours would have to keep copies of each other's models, and no source of this project says how";

class Gossip {
 public:
  explicit Gossip(Worker& worker, IndividualModels evaluated = IndividualModels::mean)
      : worker_(worker), evaluated_(evaluated) {
    declare_newest(worker.model());
  }

  // The next message of another worker; null once it has stopped.
  ReceivedMessage receive_from(Rank from, Worker::CalledFrom at = Worker::CalledFrom::current());
  // The messages received so far, in order of arrival, from workers that have not stopped.
  std::vector<ReceivedMessage> receive_what_has_come(Worker::CalledFrom at = Worker::CalledFrom::current());
  // Whether a worker has stopped, as far as this one knows; true for itself, since no worker sends to itself.
  bool has_stopped(Rank worker) const {
    return worker == worker_.rank() || last_.contains(worker) || worker_.has_left(worker);
  }

  // The mean with these weights, and the sum of the weights.
  WeightedState mean(std::vector<WeightedState> terms) const;

  // Each worker calls it after each step: reports the step, and publishes its model with this weight among all. Call
  // `stop` after the last step.
  void end_step(double weight = 1) {
    const ModelStatePtr others = others_newest_.lock();
    worker_.report_steps();
    if (others) declare_newest(others);  // a worker's steps alone do not reach other workers
    if (worker_.budget_left()) worker_.publish(WorkerModel{.weight = weight, .evaluated = evaluated_});
  }

  struct Ending {
    double weight = 1;
    bool others_may_wait = false;  // for a message of this worker, even after all have done their last step
  };
  // Ends this worker's training. All send their models to worker 0, which publishes their weighted mean: only for the
  // result, so no model takes transfer time on the clock (Message::Kind::last_model). Until worker 0 has them all it
  // has not left, so it notifies `listeners`, which may wait for its next message. Workers that leave because their own
  // data are used up are not in the mean; if worker 0 is one, there is no mean.
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
  std::weak_ptr<const ModelState> others_newest_;  // the worker holds it if it may lose its state
  std::map<Rank, Message> last_;                   // by stopped worker
};

// Reads the key `evaluated`: "average" (default) or "own".
IndividualModels read_individual_models(Settings& settings);

}  // namespace syncopate
