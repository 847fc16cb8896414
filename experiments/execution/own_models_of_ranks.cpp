#include "experiments/execution/own_models_of_ranks.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "experiments/execution/mpi_exchange.hpp"
#include "workers/mpi/mpi_reduction.hpp"

namespace syncopate {
namespace {

// Parameters and buffers.
constexpr AveragePolicy parameters_and_buffers{.buffers = StatePolicy::average};

class OwnModelsOfRanks {
 public:
  OwnModelsOfRanks(const MpiSession& session, int root, Training& training, Recorder& recorder)
      : session_(session),
        is_root_(session.rank() == root),
        training_(training),
        recorder_(recorder),
        own_(recorder.take_own_models()) {}

  void by_steps() {
    for (Step next = next_of_all(Step{-1}); next != none; next = next_of_all(next)) {
      const OwnModel* const own = first_own([next](const OwnModel& model) { return model.step >= next; });
      put_together(own && own->step == next ? own : nullptr, next);
    }
  }

  // As ModelsByTime puts them together on the simulated cluster.
  void by_time(Duration every) {
    Step last{-1};
    for (std::int64_t multiple = 1;;) {
      const Time due{multiple * every};
      const OwnModel* const own = first_own([due](const OwnModel& model) { return model.time >= due; });
      if (reduced(session_, own ? 1 : 0, MPI_MIN) == 0 || !own) return;
      const double latest_ns = reduced(session_, static_cast<double>(own->time.time_since_epoch().count()), MPI_MAX);
      const Step step = static_cast<Step::Rep>(reduced(session_, static_cast<double>(own->step.value()), MPI_MAX));
      if (step > last) put_together(own, step);
      last = step;
      multiple = Duration{static_cast<Duration::rep>(latest_ns)} / every + 1;
    }
  }

 private:
  static constexpr Step none{std::numeric_limits<Step::Rep>::max()};

  template <typename Holds>
  const OwnModel* first_own(Holds holds) const {
    const auto first = std::ranges::find_if(own_, holds);
    return first == own_.end() ? nullptr : &*first;
  }

  Step next_of_all(Step last) const {
    const OwnModel* const own = first_own([last](const OwnModel& model) { return model.step > last; });
    const auto next = static_cast<double>((own ? own->step : none).value());
    const double least = reduced(session_, next, MPI_MIN);
    return least >= static_cast<double>(none.value()) ? none : Step{static_cast<Step::Rep>(least)};
  }

  // `own`: null where this rank has none of them.
  void put_together(const OwnModel* own, Step step) {
    MetricsRow row = recorder_.row_of(publication_of(own, step));
    std::optional<double> distance;
    if (!training_.time_only()) {
      const double weights = reduced(session_, own ? own->weight : 0, MPI_SUM);
      std::vector<double> mean(training_.averaged_size(parameters_and_buffers));
      std::vector<float> values(mean.size());
      if (own) training_.write_averaged(own->model, parameters_and_buffers, values.data());
      for (std::size_t i = 0; own && i < mean.size(); ++i) mean[i] = own->weight / weights * values[i];
      reduced(session_, mean, MPI_SUM);
      const double count = reduced(session_, own ? 1 : 0, MPI_SUM);
      double squares = 0;
      for (std::size_t i = 0; own && i < training_.objective().parameters(); ++i)
        squares += (values[i] - mean[i]) * (values[i] - mean[i]);
      distance = std::sqrt(reduced(session_, squares, MPI_SUM) / count);
      const bool evaluates_each = reduced(session_, own && own->evaluated == OwnModels::each ? 1 : 0, MPI_MAX) > 0;
      row.evaluation = evaluates_each ? evaluation_of_each(own, count) : evaluation_of(mean);
    }
    if (is_root_) recorder_.add(row, distance);
  }

  // Of all ranks.
  Publication publication_of(const OwnModel* own, Step step) const {
    Publication publication;
    publication.step = step;
    const auto latest_ns = static_cast<double>(own ? own->time.time_since_epoch().count() : 0);
    publication.time = Time{Duration{static_cast<Duration::rep>(reduced(session_, latest_ns, MPI_MAX))}};
    const auto samples = static_cast<double>(own ? own->samples : 0),
               bytes = static_cast<double>(own ? own->bytes.value() : 0);
    publication.samples = static_cast<std::int64_t>(reduced(session_, samples, MPI_MAX));
    publication.bytes = static_cast<Bytes::Rep>(reduced(session_, bytes, MPI_MAX));
    publication.learning_rate = reduced(session_, own ? own->learning_rate : 0, MPI_MAX);
    return publication;
  }

  Evaluation evaluated(const ModelStatePtr& model) {
    Evaluation result;
    training_.evaluate({model}, [&result](const Evaluation& evaluation) { result = evaluation; });
    training_.executor().wait_all();
    return result;
  }

  std::optional<Evaluation> evaluation_of(const std::vector<double>& mean) {
    if (!is_root_) return std::nullopt;
    const std::vector<float> values(mean.begin(), mean.end());
    return evaluated(training_.from_averaged(training_.initial_state(), parameters_and_buffers, values.data()));
  }

  Evaluation evaluation_of_each(const OwnModel* own, double count) {
    const Evaluation mine = own ? evaluated(own->model) : Evaluation{};
    std::vector<double> sums = {mine.test_loss, mine.test_accuracy, mine.train_loss, mine.finite ? 0.0 : 1.0};
    reduced(session_, sums, MPI_SUM);
    return {.test_loss = sums[0] / count,
            .test_accuracy = sums[1] / count,
            .train_loss = sums[2] / count,
            .finite = sums[3] == 0};
  }

  const MpiSession& session_;
  bool is_root_;
  Training& training_;
  Recorder& recorder_;
  std::vector<OwnModel> own_;  // ascending
};

}  // namespace

void put_own_models_together(const MpiSession& session, int root, const EvaluationPlan& plan, Training& training,
                             Recorder& recorder) {
  OwnModelsOfRanks models(session, root, training, recorder);
  if (plan.every_duration > Duration{})
    models.by_time(plan.every_duration);
  else
    models.by_steps();
}

}  // namespace syncopate
