// A simulation that two processes of one thread divide, compared with one process of two threads:
//   mpirun --bind-to none -n 2 bin/mpi_divided_simulation_benchmark
// ResNet-8 with group normalisation on Fashion-MNIST, 64 workers, momentum. Both sides make the same run and take turns
// within each iteration, so the ratio is from one run. While one process computes, the other one sleeps.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <mpi.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "experiments/execution/ranks.hpp"
#include "experiments/sections/experiment.hpp"
#include "workers/base/machine.hpp"
#include "workers/models/torch_library.hpp"
#include "workers/mpi/mpi_process_group.hpp"

namespace {

using namespace syncopate;

constexpr const char* file = R"(name = "divided"
[cluster]
workers = 64
micro_batches = {}
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "resnet"
dataset = "fashion-mnist"
micro_batch_size = {}
learning_rate = {{ schedule = "constant", peak = 0.05 }}
optimizer = {{ name = "sgd", momentum = 0.9 }}
[models.resnet]
norm = "group"
[evaluation]
every_steps = 1000
train_samples = 100
[datasets.fashion-mnist]
[budget]
steps = {}
[[methods]]
{}
)";

const MpiSession* session = nullptr;
ProcessGroup* processes = nullptr;

struct Spent {
  double wall_s = 0;
  double processor_s = 0;  // over both processes
};

double processor_s() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Spent spent_in(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  const double before_s = processor_s();
  work();
  const double own_s = processor_s() - before_s;
  return {std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
          reduced(*session, own_s, MPI_SUM)};
}

Experiment load(int micro_batches, int size, int steps, const std::string& method) {
  const auto place = std::filesystem::temp_directory_path() / fmt::format("syncopate-divided-{}.toml", getpid());
  std::ofstream(place) << fmt::format(file, micro_batches, size, steps, method);
  Experiment experiment = load_experiment(place, {});
  std::filesystem::remove(place);
  return experiment;
}

void run(const Run& of, const ExecutionBackend& backend) {
  Progress progress(Progress::Style::silent, 1, 1);
  progress.begin_run(1, of);
  const Outcome outcome = execute(of, backend, progress, [](const Outcome&) {});
  if (!outcome.failure.empty()) throw std::runtime_error(outcome.failure);
}

void compare(benchmark::State& state, int micro_batches, int size, int steps, const std::string& method) {
  const Experiment experiment = load(micro_batches, size, steps, method);
  const Run& of = experiment.runs.front();
  std::vector<double> alone_s, divided_s, ratios, processor_ratios;
  const auto in_turn = [&] {
    const Spent alone = spent_in([&] {
      if (session->rank() == 0) run(of, {.threads = session->size()});
      from_rank_0(*session, 0.0);
    });
    const Spent divided = spent_in([&] { run(of, {.threads = 1, .processes = processes, .divided_by = session}); });
    alone_s.push_back(alone.wall_s);
    divided_s.push_back(divided.wall_s);
    ratios.push_back(alone.wall_s / divided.wall_s);
    processor_ratios.push_back(alone.processor_s / divided.processor_s);
  };
  in_turn();  // warms both sides
  alone_s.clear(), divided_s.clear(), ratios.clear(), processor_ratios.clear();
  for (auto _ : state) in_turn();
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2];
  };
  const double samples = 64.0 * micro_batches * size * steps;
  state.counters["one_process_samples_per_s"] = samples / median(alone_s);
  state.counters["divided_samples_per_s"] = samples / median(divided_s);
  state.counters["ratio"] = median(ratios);  // bar: 0.9, on an otherwise idle machine
  state.counters["processor_time_ratio"] = median(processor_ratios);
}

void BM_SynchronousSgd(benchmark::State& state) { compare(state, 1, 8, 8, "algorithm = \"sync-sgd\""); }
void BM_LocalSgd(benchmark::State& state) {
  compare(state, 1, 8, 8, "algorithm = \"local-sgd\"\nperiod = { rule = \"constant\", steps = 4 }");
}
// A fixed number of iterations, so that all ranks run the same number.
BENCHMARK(BM_SynchronousSgd)->Iterations(3)->Unit(benchmark::kMillisecond)->UseRealTime();
BENCHMARK(BM_LocalSgd)->Iterations(3)->Unit(benchmark::kMillisecond)->UseRealTime();

struct Silent : benchmark::BenchmarkReporter {
  bool ReportContext(const Context&) override { return true; }
  void ReportRuns(const std::vector<Run>&) override {}
};

}  // namespace

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  const syncopate::MpiSession mpi;
  if (!mpi.active()) {
    std::fprintf(stderr, "start this benchmark with mpirun -n 2\n");
    return 2;
  }
  session = &mpi;
  syncopate::load_torch();
  const auto group = syncopate::make_mpi_process_group(mpi);
  processes = group.get();
  std::string without_colour = "--benchmark_color=false";  // mpirun gives its ranks their own terminal
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 1, without_colour.data());
  int count = static_cast<int>(arguments.size());
  benchmark::Initialize(&count, arguments.data());
  Silent silent;
  benchmark::RunSpecifiedBenchmarks(mpi.rank() == 0 ? nullptr : &silent);
  return 0;
}
