// A GPT of 10 million parameters on texts of bytes. Synchronous SGD on a simulated cluster of 16 workers is compared
// with a plain LibTorch loop over fused batches. One thread's gradient is compared with that of the loop's module by
// processor time, which other programs on the machine hardly change. The memory of 8 workers' Local SGD with AdamW is
// compared with the size of their models, moments and gradients.
#include <malloc.h>
#include <torch/torch.h>

#include <ctime>
#include <fstream>
#include <limits>

#include "algorithms/synchronous/sync_sgd.hpp"
#include "tests/algorithms/named_rounds.hpp"
#include "tests/benchmarks/simulated_training.hpp"
#include "tests/workers/random_texts.hpp"
#include "tests/workers/sample_tokens.hpp"
#include "workers/base/machine.hpp"
#include "workers/models/architectures.hpp"
#include "workers/models/batch.hpp"
#include "workers/models/torch_objective.hpp"

namespace syncopate {
namespace {

constexpr std::int64_t vocabulary = 257;
const GptOptions options{.width = 320, .depth = 8, .heads = 8, .context = 256, .mlp_width = 1280};

std::shared_ptr<const Dataset> windows() {
  static const auto dataset = random_texts(vocabulary, 1, options.context + 1, options.context + 1, 512, 16);
  return dataset;
}

std::shared_ptr<const TorchObjective> objective_of(const GptOptions& of, int workers, std::int64_t micro_batch_size) {
  constexpr std::int64_t chunk = 8;
  return std::make_shared<TorchObjective>(
      gpt_network(windows()->size().shape, of), windows(),
      SamplerOptions{
          .samples = 512, .workers = workers, .micro_batches = 1, .micro_batch_size = micro_batch_size, .seed = 1},
      chunk);
}

// As in common code for small GPTs: modules of torch::nn, and attention with a mask that is stored once.
class PlainGpt : public torch::nn::Module {
 public:
  explicit PlainGpt(const GptOptions& o) : heads_(o.heads) {
    words_ = register_module("words", torch::nn::Embedding(vocabulary, o.width));
    places_ = register_module("places", torch::nn::Embedding(o.context, o.width));
    for (std::int64_t i = 0; i < o.depth; ++i) {
      const std::string number = std::to_string(i);
      const auto dense = [&](const char* name, std::int64_t in, std::int64_t out) {
        return register_module(name + number, torch::nn::Linear(in, out));
      };
      const auto norm = [&](const char* name) {
        return register_module(name + number, torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})));
      };
      blocks_.push_back({norm("norm1_"), norm("norm2_"), dense("in", o.width, 3 * o.width),
                         dense("out", o.width, o.width), dense("up", o.width, o.mlp_width),
                         dense("down", o.mlp_width, o.width)});
    }
    norm_ = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({o.width})));
    later_ = torch::ones({o.context, o.context}, torch::kBool).triu(1);
    torch::NoGradGuard no_grad;
    for (auto& parameter : parameters())
      if (parameter.dim() > 1) parameter.normal_(0, o.deviation);
  }

  // The mean loss of tokens (n, context + 1).
  torch::Tensor loss(const torch::Tensor& tokens) {
    const auto n = tokens.size(0), length = tokens.size(1) - 1;
    auto x = words_(tokens.narrow(1, 0, length)) + places_(torch::arange(length));
    for (Block& block : blocks_) {
      const auto parts = block.in(block.norm1(x)).split(x.size(2), 2);
      const auto heads = [&](const torch::Tensor& of) { return of.view({n, length, heads_, -1}).transpose(1, 2); };
      const auto q = heads(parts[0]), k = heads(parts[1]), v = heads(parts[2]);
      const auto scores = (q.matmul(k.transpose(2, 3)) / std::sqrt(static_cast<double>(q.size(3))))
                              .masked_fill(later_, -std::numeric_limits<float>::infinity());
      const auto results = scores.softmax(3).matmul(v).transpose(1, 2).contiguous().view({n, length, x.size(2)});
      x = x + block.out(results);
      x = x + block.down(torch::gelu(block.up(block.norm2(x))));
    }
    const auto logits = norm_(x).matmul(words_->weight.t());
    return torch::nn::functional::cross_entropy(logits.flatten(0, 1), tokens.narrow(1, 1, length).reshape({-1}));
  }

 private:
  struct Block {
    torch::nn::LayerNorm norm1, norm2;
    torch::nn::Linear in, out, up, down;
  };
  std::int64_t heads_;
  torch::nn::Embedding words_{nullptr}, places_{nullptr};
  std::vector<Block> blocks_;
  torch::nn::LayerNorm norm_{nullptr};
  torch::Tensor later_;
};

class GptLoop {
 public:
  GptLoop(const GptOptions& of, std::int64_t batch)
      : module_(of), optimizer_(module_.parameters(), torch::optim::SGDOptions(0.01).momentum(0.9)), batch_(batch) {}

  void step() {
    optimizer_.zero_grad();
    gradient();
    optimizer_.step();
  }

  void gradient() {
    std::vector<torch::Tensor> rows;
    for (std::int64_t i = 0; i < batch_; ++i) {
      const auto tokens = sample_tokens(*windows(), Split::train, static_cast<std::uint32_t>(next_++ % 512));
      rows.push_back(torch::tensor(std::vector<std::int64_t>(tokens.begin(), tokens.end())));
    }
    module_.loss(torch::stack(rows)).backward();
  }

 private:
  PlainGpt module_;
  torch::optim::SGD optimizer_;
  std::int64_t batch_;
  std::int64_t next_ = 0;
};

void SyncSgdAgainstFusedLoop(benchmark::State& state) {
  constexpr int workers = 16, steps = 1;
  const auto objective = objective_of(options, workers, 1);
  GptLoop loop(options, workers);
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    set_threads(1, 1);
    ours += simulate(SyncSgd(), objective, workers, 1, steps);
    set_threads(cores, cores);
    theirs += seconds_of([&] { loop.step(); });
  }
  set_threads(1, 1);
  const double samples = static_cast<double>(state.iterations()) * steps * workers;
  report(state, samples / ours, samples / theirs, 0.95);
}

double processor_s(const std::function<void()>& work) {
  const auto now = [] {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  };
  const double start = now();
  work();
  return now() - start;
}

void GradientAgainstModule(benchmark::State& state, std::int64_t texts) {
  set_threads(1, 1);
  const auto objective = objective_of(options, 1, texts);
  const std::vector<float> parameters = objective->initial_parameters(1);
  GptLoop loop(options, texts);
  const MicroBatch micro_batch;
  double ours = 0, theirs = 0;
  for (auto _ : state) {
    ours += processor_s([&] { objective->gradient(parameters.data(), nullptr, {&micro_batch, 1}); });
    theirs += processor_s([&] { loop.gradient(); });
  }
  const double samples = static_cast<double>(state.iterations() * texts);
  report(state, samples / ours, samples / theirs, 0.95);
}

// A line of /proc/self/status, in bytes.
double bytes_of(const std::string& name) {
  std::ifstream lines("/proc/self/status");
  for (std::string word; lines >> word;)
    if (word == name + ":") {
      double kilobytes = 0;
      lines >> kilobytes;
      return 1024 * kilobytes;
    }
  return 0;
}

// Runs Local SGD in a process that has already computed a gradient, so that LibTorch's own memory is not counted.
void LocalSgdMemory(benchmark::State& state, std::int64_t micro_batch_size) {
  constexpr int workers = 8, steps = 8;
  const auto objective = objective_of(options, workers, micro_batch_size);
  const auto small = objective_of({.width = 8, .depth = 1, .heads = 1, .context = options.context, .mlp_width = 8},
                                  workers, micro_batch_size);
  const auto train = [](std::shared_ptr<const Objective> of) {
    const auto experiment = load_experiment(SYNCOPATE_SOURCE_DIR "/experiments/quickstart.toml", {});
    const Run& run = experiment.runs.front();
    Executor executor(cores);
    Training training(std::move(of), make_adamw({}), {}, executor);
    SimulatedCluster cluster({.workers = workers,
                              .micro_batches = 1,
                              .compute_time = *run.cluster.compute_time,
                              .network = *run.cluster.network,
                              .training = training});
    const LearningRate rate(LearningRate::Options{.peak = 0.001});
    run_algorithm(LocalSgd(make_constant_period(4), StatePolicies{}), {.cluster = cluster,
                                                                       .training = training,
                                                                       .learning_rate = rate,
                                                                       .budget = {.steps = steps},
                                                                       .micro_batches = 1,
                                                                       .initial_model = training.initial_state()});
    executor.wait_all();
  };
  set_threads(1, 1);
  for (auto _ : state) {
    train(small);
    malloc_trim(0);
    const double before = bytes_of("VmRSS");
    std::ofstream("/proc/self/clear_refs") << 5;  // resets the peak
    train(objective);
    const double taken = bytes_of("VmHWM") - before;
    const double needed = 4.0 * static_cast<double>(objective->parameters()) * (3 * workers + cores);
    state.counters["parameters"] = static_cast<double>(objective->parameters());
    state.counters["taken_mb"] = 1e-6 * taken;
    state.counters["needed_mb"] = 1e-6 * needed;
    state.counters["ratio"] = taken / needed;
    state.counters["bar"] = 1.1;
  }
}

BENCHMARK(SyncSgdAgainstFusedLoop)->Iterations(3)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK_CAPTURE(GradientAgainstModule, one_text, 1)->Iterations(6)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(GradientAgainstModule, eight_texts, 8)->Iterations(2)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(LocalSgdMemory, one_text, 1)->Iterations(1)->Unit(benchmark::kMillisecond)->UseRealTime();

}  // namespace
}  // namespace syncopate

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  benchmark::Initialize(&argc, argv);
  benchmark::RunSpecifiedBenchmarks();
}
