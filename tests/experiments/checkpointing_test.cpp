// A run that is stopped at a checkpoint and taken up again comes to the same, to the bit: every method of the registry,
// and what else workers may hold, each at random steps, with one thread before and two after it, and the other way
// round.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "algorithms/registry.hpp"
#include "tests/experiments/checkpointed_runs.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/loaded_text.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using namespace checkpointed;

class CheckpointedMethods : public LoadedText {
 protected:
  Outcome run(const syncopate::Run& run, int threads, const std::function<bool(std::int64_t)>& due) const {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    const CheckpointUse use{.file = checkpoint(), .due = due};
    return execute(
        run, {.threads = threads}, progress, [](const Outcome&) {}, &use);
  }
  fs::path checkpoint() const { return folder_ / "run.checkpoint"; }

  // Takes the run up at `times` random steps, each of a new course.
  void expect_same_after_interruption(const syncopate::Run& of, int times = 2) const {
    SCOPED_TRACE(of.resolved_toml);
    fs::remove(checkpoint());
    const std::string plain = all_of(of, outcome_of(of));
    ASSERT_THAT(plain, testing::Not(testing::StartsWith("failed")));
    std::int64_t steps = 0;
    const auto counts = [&](std::int64_t step) {
      steps = step;
      return false;
    };
    ASSERT_EQ(all_of(of, run(of, 2, counts)), plain) << "without an interruption";
    ASSERT_GT(steps, 0);
    for (int time = 0; time < times; ++time) {
      const RandomStream stream{.seed = of.seed, .purpose = Purpose::algorithm, .stream = 7, .step = Step{time}};
      const auto at = 1 + static_cast<std::int64_t>(stream.uniform(0) * static_cast<double>(steps));
      const int first = 1 + time % 2, second = 3 - first;
      fs::remove(checkpoint());
      const auto stops = [at](std::int64_t step) {
        if (step > at) throw Stopped();
        return step == at;
      };
      const Outcome stopped = run(of, first, stops);
      EXPECT_EQ(stopped.failure, at < steps ? Stopped().what() : "");
      ASSERT_TRUE(fs::exists(checkpoint()));
      std::optional<std::int64_t> begun_at;
      const auto goes_on = [&](std::int64_t step) {
        if (!begun_at) begun_at = step;
        return false;
      };
      EXPECT_EQ(all_of(of, run(of, second, goes_on)), plain) << "taken up at step " << at << " of " << steps;
      EXPECT_EQ(begun_at, at) << "it did not begin anew";
    }
  }
};

TEST_F(CheckpointedMethods, AllOfTheRegistryComeToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const auto load_text = [this](const std::string& text) { return load(text); };
    const Experiment experiment = held::of_example(cluster + linear, row.name, row.example, load_text);
    for (const syncopate::Run& of : experiment.runs) expect_same_after_interruption(of);
  }
}

TEST_F(CheckpointedMethods, WithWhatIsCompressedOrAveragedBesides) {
  for (const held::Methods& methods : {held::with_state, held::with_more_compressions})
    for (const syncopate::Run& of : load(cluster + linear + held::text_of(methods)).runs)
      expect_same_after_interruption(of);
}

TEST_F(CheckpointedMethods, WhereOutagesTakeTheWorkersState) {
  const std::string text =
      cluster + linear + "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  for (const syncopate::Run& of : load(text + held::text_of(held::that_lose_state)).runs)
    expect_same_after_interruption(of, 4);
}

// The file is whole and says that it is of this run, but another program has gone another way: nothing is mixed.
TEST_F(CheckpointedMethods, OfAnotherCourseBeginAnew) {
  Experiment experiment = load(cluster + linear + held::text_of({held::sync_sgd, held::local_sgd}));
  syncopate::Run &one = experiment.runs.front(), &other = experiment.runs.back();
  other.hash = one.hash;
  run(one, 1, [](std::int64_t step) {
    if (step > 20) throw Stopped();
    return step == 20;
  });
  ASSERT_TRUE(fs::exists(checkpoint()));
  testing::internal::CaptureStderr();
  const Outcome outcome = run(other, 1, [](std::int64_t) { return false; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("; the run begins anew\n"));
  EXPECT_EQ(all_of(other, outcome), all_of(other, outcome_of(other)));
}

TEST_F(CheckpointedMethods, OfAModelWithBatchNormalisation) {
  const std::string text = cluster + held::batch_normalised_training + held::text_of(held::families);
  for (const syncopate::Run& of : load(text).runs) expect_same_after_interruption(of);
}

}  // namespace
}  // namespace syncopate
