// Runs that several processes divide, which are stopped at a checkpoint and taken up again, come to the same, to the bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "algorithms/registry.hpp"
#include "tests/experiments/checkpointed_runs.hpp"
#include "tests/experiments/divided_runs.hpp"
#include "tests/experiments/loaded_text.hpp"
#include "workers/base/random.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using namespace checkpointed;

class DividedCheckpoints : public LoadedText {
 protected:
  fs::path checkpoint() const { return folder_ / "run.checkpoint"; }

  Outcome first_of(const syncopate::Run& of, int processes, const std::function<bool(std::int64_t)>& due) const {
    const CheckpointUse use{.file = checkpoint(), .due = due};
    return divided_outcomes(of, processes, 1, nullptr, &use).front();
  }

  // With a checkpoint at `last`. The first process writes it while the others go on, and must not hear of their end
  // before.
  std::function<bool(std::int64_t)> stops_after(std::int64_t last) const {
    return [this, last](std::int64_t step) {
      if (step <= last) return step == last;
      for (int i = 0; i < 1000 && !fs::exists(checkpoint()); ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      throw Stopped();
    };
  }

  void expect_same_after_interruption(const syncopate::Run& of, int processes) const {
    SCOPED_TRACE(of.resolved_toml);
    remove_checkpoint(checkpoint());
    const std::string plain = all_of(of, divided_outcomes(of, processes).front());
    ASSERT_THAT(plain, testing::Not(testing::StartsWith("failed")));
    std::atomic<std::int64_t> steps = 0;
    const auto counts = [&](std::int64_t step) {
      steps = step;
      return false;
    };
    ASSERT_EQ(all_of(of, first_of(of, processes, counts)), plain) << "without an interruption";
    const RandomStream stream{.seed = of.seed, .purpose = Purpose::algorithm, .stream = 8};
    const auto at = 1 + static_cast<std::int64_t>(stream.uniform(0) * static_cast<double>(steps));
    const Outcome stopped = first_of(of, processes, stops_after(at));
    if (at < steps) {
      EXPECT_THAT(stopped.failure, testing::HasSubstr(Stopped().what()));
    }
    ASSERT_TRUE(fs::exists(checkpoint()));
    std::atomic<std::int64_t> begun_at = 0;
    const auto goes_on = [&](std::int64_t step) {
      std::int64_t none = 0;
      begun_at.compare_exchange_strong(none, step);
      return false;
    };
    EXPECT_EQ(all_of(of, first_of(of, processes, goes_on)), plain) << "taken up at step " << at << " of " << steps;
    EXPECT_EQ(begun_at, at) << "it did not begin anew";
  }
};

TEST_F(DividedCheckpoints, AllOfTheRegistryComeToTheSame) {
  for (const AlgorithmRow& row : algorithms()) {
    const auto load_text = [this](const std::string& text) { return load(text); };
    const Experiment experiment = held::of_example(cluster + linear, row.name, row.example, load_text);
    for (const syncopate::Run& of : experiment.runs) expect_same_after_interruption(of, 2);
  }
}

TEST_F(DividedCheckpoints, WithWhatIsCompressedOrAveragedBesides) {
  for (const held::Methods& methods : {held::with_state, held::with_more_compressions})
    for (const syncopate::Run& of : load(cluster + linear + held::text_of(methods)).runs)
      expect_same_after_interruption(of, 3);
}

TEST_F(DividedCheckpoints, WhereOutagesTakeTheWorkersState) {
  const std::string text =
      cluster + linear + "[[outages]]\nmean_time_between_s = 15.0\nmean_duration_s = 2.0\nstate = \"lost\"\n";
  for (const syncopate::Run& of : load(text + held::text_of(held::that_lose_state)).runs)
    expect_same_after_interruption(of, 2);
}

TEST_F(DividedCheckpoints, OfAModelWithBatchNormalisation) {
  const std::string text = cluster + held::batch_normalised_training + held::text_of(held::families);
  for (const syncopate::Run& of : load(text).runs) expect_same_after_interruption(of, 2);
}

// All of them hear of the one that finds it out, and begin anew.
TEST_F(DividedCheckpoints, OfAnotherCourseBeginAnew) {
  Experiment experiment = load(cluster + linear + held::text_of({held::sync_sgd, held::local_sgd}));
  syncopate::Run &one = experiment.runs.front(), &other = experiment.runs.back();
  other.hash = one.hash;
  first_of(one, 3, stops_after(20));
  ASSERT_TRUE(fs::exists(checkpoint()));
  testing::internal::CaptureStderr();
  const Outcome outcome = first_of(other, 3, [](std::int64_t) { return false; });
  EXPECT_THAT(testing::internal::GetCapturedStderr(), testing::EndsWith("; the run begins anew\n"));
  EXPECT_EQ(all_of(other, outcome), all_of(other, divided_outcomes(other, 3).front()));
}

}  // namespace
}  // namespace syncopate
