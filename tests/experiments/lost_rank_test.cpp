// A rank that is killed in the middle of a run: the others are ended by the launcher in the same way as by Ctrl-C, and
// say what has happened all the same.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "tests/experiments/emulated_cluster.hpp"
#include "tests/experiments/program.hpp"
#include "tests/experiments/program_processes.hpp"
#include "workers/base/machine.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using testing::Not;

// An experiment of two runs on three ranks, without what it trains.
std::string on_three_ranks(const std::string& name) {
  return fmt::format("name = \"{}\"\n{}{}[network]\nkind = \"free\"\n[[methods]]\nalgorithm = \"sync-sgd\"\n", name,
                     emulated_cluster(3, 0.05), plain_sgd);
}

// The second run takes days, nearly all of which ranks sleep, so that they are not in the middle of a reduction.
const std::string long_sleeps = on_three_ranks("lost") + R"([training]
model = "quadratic"
[evaluation]
every_steps = 5
[sweep]
"budget.steps" = [10, 10_000_000]
)";

// The second run's first gradient takes more arithmetic than anybody waits for, and no rank can leave it.
const std::string long_steps = on_three_ranks("long") + R"([training]
model = "mlp"
dataset = "gaussian-mixture"
[models.mlp]
hidden = [4000, 4000]
[datasets.gaussian-mixture]
train = 12000
test = 10
[evaluation]
train_samples = 10
[budget]
steps = 1
[sweep]
"training.micro_batch_size" = [1, 4000]
)";

class LostRank : public ProgramTest {
 protected:
  // Runs the experiment on three ranks; once the first run is there, `disturb` gets the ranks' processes.
  template <typename Disturb>
  ProgramOutcome launch(Disturb disturb, const std::string& what = long_sleeps) {
    write("e.toml", what);
    // Open MPI kills the survivors a second after it has told them to end, on a busy machine before they can speak. It
    // always waits so long.
    for (const char* const name : {"OMPI_MCA_odls_base_sigkill_timeout", "PRTE_MCA_odls_base_sigkill_timeout"})
      ::setenv(name, "5", 1);  // of Open MPI 4, and of 5
    ProgramOutcome outcome;
    std::thread launcher([&] { outcome = syncopate("run e.toml --quiet --results results", 3); });
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(100);
    while (!a_run_is_there() && std::chrono::steady_clock::now() < end)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    const std::vector<pid_t> ranks = processes_in(directory, SYNCOPATE_PROGRAM);
    EXPECT_EQ(ranks.size(), 3U);
    if (!ranks.empty()) disturb(ranks);
    launcher.join();
    return outcome;
  }

  bool a_run_is_there() const {
    std::error_code none;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(directory / "results", none))
      if (entry.path().filename() == "summary.json") return true;
    return false;
  }
};

pid_t launcher_of(pid_t rank) {
  std::ifstream status("/proc/" + std::to_string(rank) + "/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
  return 0;
}

TEST_F(LostRank, IsNamedByTheSurvivorsAndNotCalledAnInterruption) {
  for (const std::size_t victim : {std::size_t{0}, std::size_t{2}}) {
    const auto outcome = launch([&](const std::vector<pid_t>& ranks) { kill(ranks[victim], SIGKILL); });
    EXPECT_NE(outcome.status, 0);
    EXPECT_NE(outcome.status, 130);
    EXPECT_THAT(outcome.err, testing::ContainsRegex(a_rank_was_lost()));
    if (launcher_shows_all) {
      EXPECT_THAT(outcome.err, HasSubstr("finished runs stay"));
    }
    EXPECT_THAT(outcome.err, Not(HasSubstr("interrupted")));
    EXPECT_TRUE(a_run_is_there());
    std::filesystem::remove_all(directory / "results");
  }
}

TEST_F(LostRank, IsNotClaimedWhereTheUserInterruptsALongStepEither) {
  const auto outcome =
      launch([](const std::vector<pid_t>& ranks) { kill(launcher_of(ranks.front()), SIGINT); }, long_steps);
  if (launcher_shows_all) {
    EXPECT_THAT(outcome.err, HasSubstr("interrupted; finished runs stay"));
  }
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, Not(HasSubstr("lost")));
}

TEST_F(LostRank, IsNotClaimedWhereTheUserInterrupts) {
  const auto outcome = launch([](const std::vector<pid_t>& ranks) { kill(launcher_of(ranks.front()), SIGINT); });
  if (launcher_shows_all) {
    EXPECT_THAT(outcome.err, HasSubstr("interrupted; finished runs stay"));
  }
  EXPECT_NE(outcome.status, 0);
  EXPECT_THAT(outcome.err, Not(HasSubstr("lost")));
}

}  // namespace
}  // namespace syncopate
