#include "experiments/execution/rehearsal.hpp"

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "experiments/execution/run_on_cluster.hpp"
#include "results/rows/recorder.hpp"
#include "workers/training/flat_vector.hpp"

namespace syncopate {
namespace {

// The two sizes by whose difference vectors are told from all else that is allocated.
constexpr std::size_t small_size = 1024;
constexpr std::size_t large_size = 3072;

double allocated_bytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks) + static_cast<double>(info.hblkhd);
}

// Tensors of the model, each smaller by the same factor, matrices in both directions.
std::vector<ParameterTensor> scaled(const std::vector<ParameterTensor>& tensors, std::size_t size) {
  std::size_t whole = 0;
  for (const ParameterTensor& tensor : tensors) whole += tensor.size;
  const double factor = whole == 0 ? 1 : static_cast<double>(size) / static_cast<double>(whole);
  const auto part = [](double value) { return static_cast<std::size_t>(std::max(1.0, std::round(value))); };
  std::vector<ParameterTensor> result;
  std::size_t offset = 0;
  for (ParameterTensor tensor : tensors) {
    if (tensor.rows > 0) {
      const auto rows = static_cast<double>(tensor.rows);
      const double columns = static_cast<double>(tensor.size) / rows, along = std::sqrt(factor);
      tensor.rows = part(rows * along);
      tensor.size = tensor.rows * part(columns * along);
    } else {
      tensor.size = part(static_cast<double>(tensor.size) * factor);
    }
    tensor.offset = offset;
    offset += tensor.size;
    result.push_back(std::move(tensor));
  }
  return result;
}

// The peak is looked for whenever a gradient or an evaluation is asked for: what a step makes is there by then, and what
// it no longer needs may still be.
class StandIn : public Objective {
 public:
  StandIn(const Run& run, std::size_t size)
      : chunk_samples_(run.training.memory.chunk_samples),
        fuses_(run.training.memory.fuses_micro_batches),
        samples_(run.training.samples_per_micro_batch) {
    if (run.training.tensors.empty())
      tensors_.push_back({.name = "parameters", .size = size});
    else
      tensors_ = scaled(run.training.tensors, size);
    parameters_ = tensors_.back().offset + tensors_.back().size;
    weights_ = parameters_;
    for (std::size_t i = 1; i < tensors_.size(); ++i)
      if (tensors_[i].place < tensors_[i - 1].place) weights_ = tensors_[i].offset;
  }

  double peak() const { return peak_; }

  std::size_t parameters() const override { return parameters_; }
  std::size_t weights() const override { return weights_; }
  std::vector<ParameterTensor> tensors() const override { return tensors_; }
  std::vector<float> initial_parameters(std::uint64_t) const override { return std::vector<float>(parameters_, 0.1F); }
  PartialGradient gradient(const float*, const float*, std::span<const MicroBatch> micro_batches) const override {
    auto values = std::make_shared<FlatVector>(parameters_);
    std::ranges::fill(values->span(), 1e-3F);
    const float* const data = std::as_const(*values).data();
    PartialGradient result;
    result.segments.push_back({.offset = 0, .size = parameters_, .data = data, .owner = std::move(values)});
    result.loss_sum = static_cast<double>(micro_batches.size());
    note();
    return result;
  }
  std::int64_t chunk_samples() const override { return chunk_samples_; }
  bool fuses_micro_batches() const override { return fuses_; }
  std::int64_t samples_per_micro_batch() const override { return samples_; }
  std::int64_t steps_per_epoch() const override { return 0; }
  std::int64_t evaluation_samples(Split) const override { return 1; }
  EvaluationSums evaluate(const float*, const float*, Split, std::int64_t begin, std::int64_t end) const override {
    note();
    return {.loss = static_cast<double>(end - begin), .correct = 0, .samples = end - begin};
  }
  bool has_accuracy() const override { return false; }

 private:
  void note() const { peak_ = std::max(peak_, allocated_bytes()); }

  std::vector<ParameterTensor> tensors_;
  std::size_t parameters_ = 0;
  std::size_t weights_ = 0;
  std::int64_t chunk_samples_;
  bool fuses_;
  std::int64_t samples_;
  mutable double peak_ = 0;  // all is called by one thread
};

// The network of the run, on which the stand-in's messages take what the model's do: how long they wait on links decides
// how many there are at a time.
class NetworkOfModel : public NetworkModel {
 public:
  NetworkOfModel(std::shared_ptr<const NetworkModel> network, double factor)
      : network_(std::move(network)), factor_(factor) {}
  Duration collective(const CollectiveCall& call) const override { return network_->collective(of_model(call)); }
  Duration message(const MessageCall& call) const override { return network_->message(of_model(call)); }
  bool has_shared_links() const override { return network_->has_shared_links(); }
  bool has_unshared_links() const override { return network_->has_unshared_links(); }
  Route route(const CollectiveCall& call) const override { return network_->route(of_model(call)); }
  Route route(const MessageCall& call) const override { return network_->route(of_model(call)); }
  std::optional<Overlap> overlap() const override { return network_->overlap(); }
  bool varies() const override { return network_->varies(); }

 private:
  template <typename Call>
  Call of_model(Call call) const {
    call.payload = Bytes{std::llround(factor_ * static_cast<double>(call.payload.value()))};
    return call;
  }

  std::shared_ptr<const NetworkModel> network_;
  double factor_;
};

struct Peak {
  double bytes = 0;
  std::size_t parameters = 0;
};

Peak peak_of(Run run, std::size_t size) {
  const double before = allocated_bytes();
  const auto stand_in = std::make_shared<StandIn>(run, size);
  run.cluster.network = std::make_shared<NetworkOfModel>(
      run.cluster.network, static_cast<double>(run.training.parameter_bytes.value()) /
                               (sizeof(float) * static_cast<double>(stand_in->parameters())));
  RunTraining training(run, stand_in, 0);
  Recorder recorder({.plan = run.evaluation, .workers = run.cluster.workers, .on_change = {}}, *training.training);
  const auto cluster = make_simulated_cluster(run, *training.training, &recorder, nullptr);
  const RunContext context = context_of(run, *cluster, *training.training, &recorder);
  recorder.begin(context.initial_model, run.training.learning_rate->at(Step{0}));
  run_algorithm(*run.algorithm, context);
  recorder.finish();
  return {.bytes = stand_in->peak() - before, .parameters = stand_in->parameters()};
}

}  // namespace

Rehearsed rehearse(const Run& run, std::int64_t worker_steps) {
  const std::int64_t per_step = run.cluster.workers * (1 + run.cluster.micro_batches / 16);
  const Step steps{std::max<std::int64_t>(2, worker_steps / per_step)};
  Run part = run;
  part.training.start = nullptr;
  part.measurements = {};
  const bool is_whole = part.budget.steps && *part.budget.steps <= steps;
  part.budget.steps = std::min(part.budget.steps.value_or(steps), steps);
  peak_of(part, small_size);  // what is allocated once and for all
  const Peak large = peak_of(part, large_size), small = peak_of(part, small_size);
  const double vectors =
      (large.bytes - small.bytes) / (sizeof(float) * static_cast<double>(large.parameters - small.parameters));
  return {.vectors = std::max(1.0, vectors), .is_whole = is_whole};
}

}  // namespace syncopate
