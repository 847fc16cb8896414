#include "experiments/execution/memory.hpp"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "results/recorder.hpp"
#include "results/run.hpp"
#include "workers/base/process.hpp"
#include "workers/cluster/accounting.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

constexpr double least_program_bytes = 20e6;  // more than it is, so that small experiments all say the same
constexpr double library_bytes = 170e6;       // of LibTorch 1.13 with OpenBLAS once a first gradient has been computed
constexpr double simulated_worker_bytes = 30e3;         // tests/README.md: 28 to 31 KB, with a model
constexpr double time_only_worker_bytes = 6.5e3;        // on a stack of its own
constexpr double worker_on_shared_stack_bytes = 3.2e3;  // in turn with others
constexpr double worker_in_lockstep_bytes = 0.6e3;
constexpr double row_text_bytes = 100;     // of a row in a file, which is put together in memory
constexpr int most_own_stacks = 8192;      // of SimulatedOptions
constexpr int most_guarded_stacks = 1024;  // of StackPool, as the next two
constexpr double guarded_stack_bytes = 132 * 1024;
constexpr double dense_stack_bytes = 33 * 1024;
constexpr int most_rehearsed_workers = 1024;

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double size = 0, pages = 0;
  file >> size >> pages;
  return pages * static_cast<double>(sysconf(_SC_PAGESIZE));
}

// When it is first asked: what rehearsals leave behind is used again, and LibTorch may be loaded between two questions.
double program_bytes(bool trains_network) {
  static const double resident = std::max(resident_bytes(), least_program_bytes);
  static const bool has_library = torch_is_loaded();
  return trains_network && !has_library ? resident + library_bytes : resident;
}

bool trains(const Run& run) { return !run.training.time_only && run.training.parameter_bytes > Bytes{0}; }

double vector_bytes(const Run& run) {
  return static_cast<double>(run.training.parameter_bytes.value()) +
         static_cast<double>(sizeof(float)) * static_cast<double>(run.training.memory.buffers);
}

// If each had a model of its own where its method allows it.
double most_vectors(const Run& run) {
  const double state = 1 + run.training.optimizer->moments();
  const Traits traits = run.algorithm->traits();
  return traits.sums_gradients ? 2 * state : run.cluster.workers * state + 2 * state;
}

std::optional<Rehearsed> rehearsed(const Run& run, std::int64_t worker_steps) {
  if (worker_steps <= 0 || run.cluster.workers > most_rehearsed_workers || run.cluster.to_be_measured) return {};
  try {
    const Rehearsed found = rehearse(run, worker_steps);
    return found.vectors > 1 ? std::optional(found) : std::nullopt;
  } catch (const Interrupted&) {
    throw;
  } catch (const std::exception&) {  // the run itself says so
    return {};
  }
}

// Whether later steps may be of another kind than the first ones: local steps after common ones.
bool may_part_later(const Run& run) {
  const Traits traits = run.algorithm->traits();
  return !traits.sums_gradients && traits.servers == 0;
}

// What the allocator holds beside: each thread takes memory from an arena of its own, and blocks that have been free are
// cut up. Where models come and go with every exchange that is much, where they are updated in place little. Measured on
// an MLP of 1.9 million parameters with 1 and 2 threads; for more threads a guess.
double slack(const Run& run, int threads) {
  const Traits traits = run.algorithm->traits();
  const bool stay = traits.sums_gradients || traits.averages_models || traits.publishes_rounds;
  return stay ? 0.1 : std::min(1.0, 0.5 * threads);
}

double vectors_of(const Run& run, const MemoryOptions& options) {
  const double state = 1 + run.training.optimizer->moments();
  if (options.is_mpi_rank) return 2 * state + 3;  // its own, what is averaged or sent, and an evaluation's
  const auto found = rehearsed(run, options.worker_steps);
  double vectors = found ? found->vectors : most_vectors(run);
  if (found && !found->is_whole && may_part_later(run)) vectors = std::max(vectors, most_vectors(run));
  const double of_all = 2 * state;  // what is there once, whoever has the workers
  const int largest_block = (run.cluster.workers + options.dividing - 1) / options.dividing;
  vectors = std::max(std::min(vectors, of_all), vectors * largest_block / run.cluster.workers);
  vectors *= 1 + slack(run, options.threads);
  // Evaluations go on beside the next steps, which then cannot take place in the model's own memory; and each thread
  // has a gradient under way.
  return vectors + state + options.threads;
}

double worker_bytes(const Run& run) {
  const auto each = [&] {
    if (trains(run)) return simulated_worker_bytes;
    if (run.same_course_from() == Step{0}) return worker_in_lockstep_bytes;
    return run.cluster.workers <= most_own_stacks ? time_only_worker_bytes : worker_on_shared_stack_bytes;
  };
  return each() * run.cluster.workers;
}

// Vectors grow by doubling, and a file's text stands beside them.
double record_bytes(const Run& run, bool mpi) {
  const std::optional<Step> planned = planned_steps(run);
  const double steps = planned ? static_cast<double>(planned->value()) : 0;
  const double micro_batches = steps * run.cluster.workers * run.cluster.micro_batches;
  const auto rows = [](double count, std::size_t size) {
    return count * (2 * static_cast<double>(size) + row_text_bytes);
  };
  double bytes = rows(steps, sizeof(StepRow));
  const double evaluations = steps / static_cast<double>(std::max<std::int64_t>(1, run.evaluation.every_steps.value()));
  bytes += rows(evaluations, sizeof(MetricsRow));
  if (mpi) bytes += evaluations * vector_bytes(run);  // kept until the end
  if (run.recording.records_durations(mpi)) bytes += rows(micro_batches, sizeof(MicroBatchTime));
  if (run.recording.arrivals) bytes += rows(steps * run.cluster.workers, sizeof(GradientArrival));
  if (run.recording.trace)
    bytes += rows(std::min(static_cast<double>(run.recording.trace_events), 3 * micro_batches), sizeof(Span));
  return bytes;
}

}  // namespace

MemoryNeed memory_need(const Run& run, const MemoryOptions& options) {
  MemoryNeed need{.program = program_bytes(run.training.trains_network)};
  need.records = record_bytes(run, options.is_mpi_rank);
  need.workers = options.is_mpi_rank ? 0 : worker_bytes(run);
  if (!trains(run)) return need;
  const ObjectiveMemory& objective = run.training.memory;
  need.is_complete = objective.is_known;
  need.data = static_cast<double>(objective.data_bytes);
  need.vectors = vectors_of(run, options);
  need.models = need.vectors * vector_bytes(run);
  const int threads = options.is_mpi_rank ? 1 : options.threads;
  need.passes = threads * static_cast<double>(objective.pass_bytes);
  return need;
}

LargestNeed largest_need(std::span<const Run* const> runs, const MemoryOptions& options) {
  const auto at_most = [&](const Run& run) {
    MemoryOptions coarse = options;
    coarse.worker_steps = 0;
    return memory_need(run, coarse).total();
  };
  std::map<std::string, std::pair<double, const Run*>> of_methods;
  for (const Run* run : runs) {
    auto& [most, largest] = of_methods[run->method];
    const double bytes = at_most(*run);
    if (!largest || bytes > most) most = bytes, largest = run;
  }
  MemoryOptions fine = options;
  fine.worker_steps /= std::max<std::int64_t>(1, std::ssize(of_methods) / 4);  // a second or two in all
  LargestNeed result;
  for (const auto& [method, candidate] : of_methods) {
    const MemoryNeed need = memory_need(*candidate.second, fine);
    if (!result.run || need.total() > result.need.total()) result = {candidate.second, need};
  }
  return result;
}

double stack_room(std::span<const Run> runs) {
  double most = 0;
  for (const Run& run : runs) {
    const double each = run.cluster.workers <= most_guarded_stacks ? guarded_stack_bytes : dense_stack_bytes;
    most = std::max(most, each * std::min(run.cluster.workers, most_own_stacks));
  }
  return most;
}

std::string memory_text(double bytes, int digits) { return fmt::format("{:.{}g} GiB", bytes / (1 << 30), digits); }

std::string parts_text(const Run& run, const MemoryNeed& need, int threads) {
  std::string parts;
  const auto add = [&](const std::string& what, double bytes) {
    if (bytes >= 0.01 * need.total())
      parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", what, memory_text(bytes));
  };
  const auto parameters = static_cast<double>(run.training.parameter_bytes.value()) / sizeof(float);
  add(fmt::format("models, optimizer states and gradients ({:.0f} times {:.3g} parameters)", need.vectors, parameters),
      need.models);
  add(fmt::format("what {} thread{} computing gradients hold{}", threads, threads == 1 ? "" : "s",
                  threads == 1 ? "s" : ""),
      need.passes);
  add("data", need.data);
  add(fmt::format("{} simulated workers", run.cluster.workers), need.workers);
  add("rows", need.records);
  add("program", need.program);
  return parts + (need.is_complete ? "" : "; what the module's own layers hold is not known");
}

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
