// What `check` says of memory, against what the program takes, and what --memory refuses. Not built with sanitizers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <string>

#include "experiments/commands/commands.hpp"
#include "experiments/execution/memory.hpp"
#include "experiments/sections/experiment.hpp"
#include "tests/experiments/peak_memory.hpp"
#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

// A quadratic of 1,000 parameters on 8 workers. One micro-batch each.
constexpr const char* quadratic = R"(name = "q"
[cluster]
workers = 8
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "quadratic"
learning_rate = { schedule = "constant", peak = 0.01 }
optimizer = { name = "sgd", momentum = 0.9 }
[models.quadratic]
dimension = 1000
[budget]
steps = 40
[[methods]]
label = "m"
algorithm = "sync-sgd"
)";

// 784-1024-1024-10 on Fashion-MNIST: 1.86 million parameters, 7.5 MB.
constexpr const char* perceptron = R"(name = "t"
[cluster]
workers = 16
micro_batch_s = 0.01
micro_batches = 2
[[delays]]
kind = "exponential"
mean = 0.003
[network]
kind = "ring"
latency_s = 50e-6
bandwidth_bytes_per_s = 1.25e9
[training]
model = "mlp"
dataset = "fashion-mnist"
micro_batch_size = 8
learning_rate = { schedule = "constant", peak = 0.01 }
optimizer = { name = "sgd", momentum = 0.9 }
[models.mlp]
hidden = [1024, 1024]
[budget]
steps = 24
[evaluation]
every_steps = 12
train_samples = 2000
[[methods]]
label = "m"
algorithm = "sync-sgd"
)";

class Memory : public ProgramTest {
 protected:
  syncopate::Run run_of(const char* text, const std::vector<std::string>& overrides) const {
    return load_experiment(write("e.toml", text), overrides).runs.front();
  }
  Rehearsed rehearsed(const std::vector<std::string>& overrides) const {
    return rehearse(run_of(quadratic, overrides), 10'000);
  }
  // Of the last line of `check`, in bytes.
  double checked(const std::string& arguments) const {
    const ProgramOutcome check = syncopate("check " + arguments);
    EXPECT_EQ(check.status, 0) << check.err;
    std::smatch found;
    const std::regex line("# memory of a process: about ([0-9.e+-]+) GiB");
    EXPECT_TRUE(std::regex_search(check.out, found, line)) << check.out;
    return found.empty() ? 0 : std::stod(found[1]) * (1 << 30);
  }
  // Estimated over measured.
  double ratio(const std::string& overrides) const {
    write("e.toml", perceptron);
    const auto measured =
        static_cast<double>(peak_bytes(directory, "run e.toml --threads 2 --results results --rerun " + overrides));
    const double estimated = checked("e.toml --threads 2 " + overrides);
    std::printf("%-90s %6.0f MB, estimated %6.0f: %.2f\n", overrides.c_str(), 1e-6 * measured, 1e-6 * estimated,
                estimated / measured);
    return estimated / measured;
  }
};

// A model and its momentum, whatever the number of workers: they are in consensus. With them the gradient.
TEST_F(Memory, ARehearsalFindsOneModelWhereAllAreInConsensus) {
  for (const char* const workers : {"cluster.workers=2", "cluster.workers=64"}) {
    const Rehearsed found = rehearsed({workers});
    EXPECT_GE(found.vectors, 3) << workers;
    EXPECT_LE(found.vectors, 6) << workers;
    EXPECT_TRUE(found.is_whole);
  }
}

// N models, N momenta, a gradient, and for a moment their mean.
TEST_F(Memory, ARehearsalFindsAModelAndMomentumOfEachWorkerBetweenAverages) {
  const std::string local = "methods.m.algorithm=local-sgd", period = "methods.m.period={rule=\"constant\", steps=4}";
  for (const int workers : {4, 32}) {
    const Rehearsed found = rehearsed({local, period, fmt::format("cluster.workers={}", workers)});
    EXPECT_GE(found.vectors, 2 * workers + 1) << workers;
    EXPECT_LE(found.vectors, 2 * workers + 4) << workers;
  }
  const Rehearsed without_momentum =
      rehearsed({local, period, "cluster.workers=32", "training.optimizer={name=\"sgd\", momentum=0}"});
  EXPECT_GE(without_momentum.vectors, 32 + 1);
  EXPECT_LE(without_momentum.vectors, 32 + 4);
}

// What is not sent stays with each worker: N vectors more than without compression.
TEST_F(Memory, ARehearsalFindsTheResidualsOfCompression) {
  const double dense = rehearsed({"cluster.workers=32"}).vectors;
  const double compressed =
      rehearsed({"cluster.workers=32", "methods.m.compression={name=\"top-k\", ratio=0.01}"}).vectors;
  EXPECT_GE(compressed - dense, 32);
  EXPECT_LE(compressed - dense, 32 * 2.5);
}

TEST_F(Memory, ARehearsalThatEndsBeforeTheRunSaysSo) { EXPECT_FALSE(rehearsed({"budget.steps=100000"}).is_whole); }

// Local steps may begin after the steps that were rehearsed.
TEST_F(Memory, CountsAModelPerWorkerWhereTheMethodMayComeToThat) {
  const std::vector<std::string> late = {"methods.m.algorithm=local-sgd", "budget.steps=100000",
                                         "methods.m.period={rule=\"post-local\", steps=4, switch_step=50000}"};
  const MemoryNeed need = memory_need(run_of(quadratic, late), {.threads = 1, .worker_steps = 1000});
  EXPECT_GE(need.vectors, 2 * 8);
  const MemoryNeed part = memory_need(run_of(quadratic, late), {.threads = 1, .dividing = 4});
  EXPECT_LT(part.vectors, need.vectors);
  EXPECT_GE(part.vectors, 2 * 2);
}

TEST_F(Memory, OfAWorkerUnderMpiDoesNotGrowWithTheirNumber) {
  const auto need = [&](const char* workers) {
    return memory_need(run_of(quadratic, {workers}), {.is_mpi_rank = true}).models;
  };
  EXPECT_DOUBLE_EQ(need("cluster.workers=2"), need("cluster.workers=512"));
}

TEST_F(Memory, OfARunIsWhatCheckSaysWithinBounds) {
  for (const char* const overrides :
       {"", "methods.m.algorithm=local-sgd 'methods.m.period={rule=\"constant\", steps=4}'",
        "methods.m.algorithm=async-sgd", "methods.m.algorithm=decentralized-sgd", "cluster.workers=2",
        "methods.m.compression='{name=\"top-k\", ratio=0.01}'"}) {
    const double found = ratio(overrides);
    EXPECT_GT(found, 0.8) << overrides;
    EXPECT_LT(found, 1.5) << overrides;
  }
}

TEST_F(Memory, OfWorkersWithoutAModelIsWhatCheckSaysWithinBounds) {
  write("e.toml", std::string(time_only) + "label = \"m\"\n");
  for (const char* const overrides :
       {"cluster.workers=50000 methods.m.algorithm=async-sgd", "cluster.workers=150000 methods.m.algorithm=async-sgd",
        "cluster.workers=300000"}) {
    const auto measured =
        static_cast<double>(peak_bytes(directory, "run e.toml --results results --rerun " + std::string(overrides)));
    const double estimated = checked(std::string("e.toml ") + overrides);
    EXPECT_GT(estimated / measured, 0.8) << overrides;
    EXPECT_LT(estimated / measured, 1.5) << overrides;
  }
}

TEST_F(Memory, ThatDoesNotSufficeIsRefusedBeforeAnythingRuns) {
  const std::string file = write("e.toml", quadratic);
  const std::string run = "run " + file +
                          " --results results --threads 2 cluster.workers=500 "
                          "models.quadratic.dimension=65536 'methods.m.algorithm=local-sgd' "
                          "'methods.m.period={rule=\"constant\", steps=4}' ";
  // 500 models and momenta of 262 KB.
  const ProgramOutcome refused = syncopate(run + "--memory 100MiB");
  EXPECT_EQ(refused.status, 2) << refused.err;
  EXPECT_EQ(refused.out, "");
  EXPECT_THAT(refused.err,
              AllOf(StartsWith(file + ": \"m\" needs about 0.3"), HasSubstr("--memory leaves a process 0.098 GiB"),
                    HasSubstr("fewer workers, a smaller model")));
  EXPECT_FALSE(std::filesystem::exists(directory / "results"));
  const ProgramOutcome check = syncopate("check " + run.substr(4) + "--memory 100MiB");
  EXPECT_EQ(check.status, 2) << check.out;
  EXPECT_EQ(check.err, refused.err);
  EXPECT_EQ(syncopate("check " + run.substr(4) + "--memory 1GiB").status, 0);
  const ProgramOutcome divided = syncopate(run + "seeds=1,2,3,4 --memory 1GiB --jobs 4");
  EXPECT_EQ(divided.status, 2) << divided.err;
  EXPECT_THAT(divided.err,
              AllOf(HasSubstr("0.25 GiB of 1 GiB that 4 processes divide"), HasSubstr("fewer --jobs than 4")));
  EXPECT_EQ(syncopate("run " + file + " --results results --memory 1GiB").status, 0);
  EXPECT_EQ(syncopate("run " + file + " --memory much").status, 2);
}

TEST_F(Memory, SizesAreTakenAsUsersWriteThem) {
  EXPECT_EQ(memory_size("8GiB"), std::int64_t{8} << 30);
  EXPECT_EQ(memory_size("0.5 gib"), std::int64_t{1} << 29);
  EXPECT_EQ(memory_size("1.5k"), 1500);
  EXPECT_EQ(memory_size("20MB"), 20'000'000);
  EXPECT_EQ(memory_size("2Ki"), 2048);
  EXPECT_EQ(memory_size("123"), 123);
  for (const char* const wrong : {"", "much", "GiB", "-1GiB", "0", "0.4", "nan", "inf", "1e9", "1GiBit", "1 G B", "1bb",
                                  "8EiB", "99999999999999999999", "1,5GiB"})
    EXPECT_EQ(memory_size(wrong), std::nullopt) << wrong;
  const std::string check = "check " + write("e.toml", quadratic) + " --memory ";
  for (const char* const wrong : {"-1GiB", "0.0GiB", "much"}) {
    const ProgramOutcome outcome = syncopate(check + wrong);
    EXPECT_EQ(outcome.status, 2) << outcome.out;
    EXPECT_THAT(outcome.err, HasSubstr("must be a size such as 8GiB, 0.5GiB or 500MB; found " + std::string(wrong)));
  }
  EXPECT_EQ(syncopate(check + "0.5GiB").status, 0);
}

TEST_F(Memory, ThatIsALittleTooLargeIsSaidWithSoManyDigits) {
  write("e.toml", std::string(time_only));
  const ProgramOutcome outcome = syncopate("check e.toml --memory 19MiB");
  EXPECT_THAT(outcome.err, AllOf(HasSubstr("needs about 0.01863 GiB"), HasSubstr("a process 0.01855 GiB;")));
}

}  // namespace
}  // namespace syncopate
