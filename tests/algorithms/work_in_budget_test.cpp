// Keys that ask for more than the whole budget has, in every method that has such a key.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "algorithms/method/algorithm.hpp"
#include "tests/algorithms/method_settings.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

// 16 workers and 40 steps: 640 gradients.
AlgorithmContext forty_steps() {
  return {.workers = 16, .total_steps = 40, .work = WorkInBudget::of_steps(Step{40}, 16)};
}

struct Case {
  const char* method;  // with the place of the number
  const char* key;
  int most;
};

const std::vector<Case> cases = {
    {"algorithm = 'k-batch-sync'\ngradients = {}", "gradients", 640},
    {"algorithm = 'k-batch-async'\ngradients = {}", "gradients", 640},
    {"algorithm = 'mindflayer'\nrule = 'clipping-rennala'\nlimit_s = 1.0\ntrials = {}", "trials", 640},
    {"algorithm = 'backup-tokens'\nquorum = {}", "quorum", 640},
    {"algorithm = 'stsyn'\nquorum = 4\nlocal_steps = {}", "local_steps", 40},
    {"algorithm = 'async-local-sgd'\nupdate.name = 'plain'\nlocal_steps = {}", "local_steps", 40},
    {"algorithm = 'async-local-sgd'\nlocal_steps = 8\nupdate.name = 'buffered'\nupdate.size = {}", "update.size", 80},
    {"algorithm = 'async-local-sgd'\nlocal_steps = 8\nsteps_by_speed = 'up'\nminimum_steps = 2\n"
     "update.name = 'buffered'\nupdate.size = {}",
     "update.size", 320},
    {"algorithm = 'async-local-sgd'\nlocal_steps = 8\nupdate.name = 'delayed-nesterov'\nupdate.rate = 0.5\n"
     "update.momentum = 0.5\nupdate.every = {}",
     "update.every", 80},
    {"algorithm = 'halos'\nregions = 4\nmixing = 0.5\nlocal_steps = 4\nlocal_update.name = 'plain'\n"
     "global_update.name = 'plain'\nmerge_every = {}",
     "merge_every", 160},
    {"algorithm = 'halos'\nregions = 4\nmixing = 0.5\nlocal_steps = 4\nlocal_update.name = 'plain'\n"
     "global_update.name = 'buffered'\nmerge_every = 8\nglobal_update.size = {}",
     "global_update.size", 20},
    {"algorithm = 'halos'\nregions = 4\nmixing = 0.5\nlocal_steps = 4\nlocal_update.name = 'buffered'\n"
     "global_update.name = 'plain'\nmerge_every = 8\nlocal_update.size = {}",
     "local_update.size", 160},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nminimum_steps = {}", "minimum_steps", 40},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nquorum = 4\nminimum_steps = {}", "minimum_steps", 40},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nlocal_steps = {}", "local_steps", 40},
    {"algorithm = 'decoupled-diloco'\nouter.name = 'plain'\nfragments = 4\nlocal_steps = {}", "local_steps", 160},
    {"algorithm = 'edit'\nouter.name = 'plain'\nsync_seconds = 1.0\nminimum_steps = {}", "minimum_steps", 640},
    {"algorithm = 'mindflayer'\nlimit_s = inf\ntrials_per_worker = {}", "trials_per_worker", 40},
};

std::string faults(const Case& of, int value, const AlgorithmContext& context) {
  std::string text = of.method;
  text.replace(text.find("{}"), 2, std::to_string(value));
  return read_method(text, context).faults;
}

TEST(WorkInBudget, MoreThanTheWholeBudgetIsAFaultWithItsPlace) {
  for (const Case& of : cases) {
    EXPECT_EQ(faults(of, of.most, forty_steps()), "") << of.method;
    EXPECT_THAT(
        faults(of, of.most + 1, forty_steps()),
        HasSubstr(fmt::format("{} = {}; must be at most {}: the whole budget has", of.key, of.most + 1, of.most)))
        << of.method;
  }
}

TEST(WorkInBudget, WhereItIsNotKnownNothingIsRefused) {
  for (const Case& of : cases) EXPECT_EQ(faults(of, 100'000, {.workers = 16}), "") << of.method;
}

// What follows from a fault is no fault of its own.
TEST(WorkInBudget, AFaultOfOneKeyIsNoneOfAnother) {
  const std::string report =
      read_method("algorithm = 'async-local-sgd'\nlocal_steps = 1000\nupdate.name = 'buffered'\nupdate.size = 3",
                  forty_steps())
          .faults;
  EXPECT_THAT(report, HasSubstr("local_steps = 1000; must be at most 40: the whole budget has 640 gradients, and each "
                                "of these takes 16"));
  EXPECT_THAT(report, testing::Not(HasSubstr("update.size")));
}

TEST(WorkInBudget, OneIsAlwaysAllowed) {
  const AlgorithmContext context{.workers = 16, .work = {.gradients = 7}};
  EXPECT_EQ(faults(cases[4], 1, context), "");
  EXPECT_THAT(faults(cases[4], 2, context), HasSubstr("must be at most 1"));
}

TEST(WorkInBudget, VeryManyStepsAreNoLimit) {
  const std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_EQ(WorkInBudget::of_steps(Step{most}, 1'000'000).gradients, most);
  EXPECT_EQ(WorkInBudget{}.of(most).of(most).in_one, most);
  EXPECT_FALSE(WorkInBudget::of_steps({}, 4).gradients);
}

}  // namespace
}  // namespace syncopate
