// Verdicts on claims, from summaries made by hand.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "results/claims.hpp"
#include "results/statistics.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

constexpr Interval low = {0.1, 0.2}, around_one = {0.9, 1.1}, high = {1.5, 1.6};

Verdict verdict(const Criterion& criterion, const std::optional<Interval>& interval, Effect effect = Effect::value) {
  return verdict_of(criterion, effect, interval);
}

TEST(Verdict, GoesByTheWholeInterval) {
  const Criterion above{.above = 1.0}, below{.below = 1.0}, within{.within = Interval{0.8, 1.2}};
  EXPECT_EQ(verdict(above, low), Verdict::not_reproduced);
  EXPECT_EQ(verdict(above, around_one), Verdict::inconclusive);
  EXPECT_EQ(verdict(above, high), Verdict::reproduced);
  EXPECT_EQ(verdict(below, low), Verdict::reproduced);
  EXPECT_EQ(verdict(below, around_one), Verdict::inconclusive);
  EXPECT_EQ(verdict(below, high), Verdict::not_reproduced);
  EXPECT_EQ(verdict(within, low), Verdict::not_reproduced);
  EXPECT_EQ(verdict(within, around_one), Verdict::reproduced);
  EXPECT_EQ(verdict(within, Interval{1.1, 1.3}), Verdict::inconclusive);
  EXPECT_EQ(verdict(within, Interval{0.5, 2}), Verdict::inconclusive);
}

// A difference of exactly 0 is neither above nor below 0, even if it is certain.
TEST(Verdict, OfNoEffectIsNotReproduced) {
  EXPECT_EQ(verdict({.above = 0.0}, Interval{0, 0}), Verdict::not_reproduced);
  EXPECT_EQ(verdict({.below = 0.0}, Interval{0, 0}), Verdict::not_reproduced);
}

TEST(Verdict, AMarginIsAboutNoEffect) {
  EXPECT_EQ(verdict({.margin = 0.2}, Interval{-0.1, 0.1}, Effect::difference), Verdict::reproduced);
  EXPECT_EQ(verdict({.margin = 0.2}, around_one, Effect::difference), Verdict::not_reproduced);
  EXPECT_EQ(verdict({.margin = 0.2}, around_one, Effect::ratio), Verdict::reproduced);
  EXPECT_EQ(confidence_of({.margin = 0.2}), 0.9);
  EXPECT_EQ(confidence_of({.above = 0.2}), 0.95);
}

TEST(Verdict, IsInconclusiveWithoutAnInterval) { EXPECT_EQ(verdict({.above = 0.0}, {}), Verdict::inconclusive); }

class Claims : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(directory_); }

  void add(const std::string& method, const std::string& workers, const std::vector<double>& step_times) {
    for (std::size_t seed = 0; seed < step_times.size(); ++seed) {
      FoundRun run;
      run.configuration = {{"cluster.workers", workers}};
      run.summary.method = method;
      run.summary.method_index = method == "A" ? 0 : 1;
      run.summary.sweep = {{"cluster.workers", workers}};
      run.summary.seed = seed;
      run.summary.steps = 1;
      run.summary.end_time_s = step_times[seed];
      runs_.push_back(run);
    }
  }
  ClaimResult judged(const Claim& claim) const { return judge(claim, result_rows(runs_)); }

  std::vector<FoundRun> runs_;
  std::filesystem::path directory_ =
      std::filesystem::temp_directory_path() / ("syncopate_claims" + std::to_string(getpid()));
};

Claim ratio(const std::string& measure = "step_time_s") {
  return {.sentence = "s", .measure = measure, .method = "B", .against = "A", .effect = Effect::ratio};
}

TEST_F(Claims, ArePairedBySeed) {
  add("A", "8", {1, 2, 4});
  add("B", "8", {0.5, 1.1, 1.9});  // ratios of 0.5, 0.55 and 0.475
  Claim claim = ratio();
  claim.criterion = {.below = 0.7};
  const ClaimResult result = judged(claim);
  EXPECT_EQ(result.verdict, Verdict::reproduced);
  ASSERT_EQ(result.points.size(), 1u);
  EXPECT_NEAR(result.points[0].mean, std::cbrt(0.5 * 0.55 * 0.475), 1e-12);
  EXPECT_EQ(result.points[0].n, 3u);
  claim.criterion = {.below = 0.5};
  EXPECT_EQ(judged(claim).verdict, Verdict::inconclusive);
  EXPECT_EQ(judged(claim).reason, "the interval holds both answers");
}

// With the mean of logarithms, A / B and B / A give the same result. The ratios 0.5 and 2 themselves have a mean of
// 1.25 in both directions.
TEST_F(Claims, RatiosAreAveragedAsLogarithms) {
  add("A", "8", {1, 1, 1});
  add("B", "8", {0.5, 2, 1.5});
  Claim claim = ratio();
  claim.criterion = {.below = 1.0};
  const JudgedPoint there = judged(claim).points.at(0);
  std::swap(claim.method, claim.against);
  const JudgedPoint back = judged(claim).points.at(0);
  EXPECT_NEAR(there.mean, std::cbrt(1.5), 1e-12);
  EXPECT_NEAR(back.mean * there.mean, 1, 1e-12);
  EXPECT_NEAR(back.interval->low * there.interval->high, 1, 1e-12);
  // The interval's half width is Student's t with 2 degrees of freedom, 4.30265, times the standard error of ln 0.5, ln
  // 2 and ln 1.5.
  const std::array logs = {std::log(0.5), std::log(2.0), std::log(1.5)};
  EXPECT_NEAR(std::log(there.interval->high / there.mean), 4.30265 * statistics(logs).std / std::sqrt(3.0), 1e-4);
  runs_.clear();
  add("A", "8", {1, 1});
  add("B", "8", {0, 1});
  EXPECT_EQ(judged(ratio()).reason, "a ratio of 0 has no logarithm");
}

TEST_F(Claims, HoldEverywhereOrNotAtAll) {
  for (const char* const workers : {"8", "16"}) add("A", workers, {1, 1});
  add("B", "8", {0.5, 0.5});
  add("B", "16", {1.5, 1.5});
  Claim claim = ratio();
  claim.criterion = {.below = 1.0};
  EXPECT_THAT(judged(claim).reason, HasSubstr("\"B\" has 2 rows"));
  claim.everywhere = true;
  EXPECT_EQ(judged(claim).verdict, Verdict::not_reproduced);
  claim.where = {{"cluster.workers", "8"}};
  EXPECT_EQ(judged(claim).verdict, Verdict::reproduced);
}

TEST_F(Claims, AreOfSlopesToo) {
  for (const char* const workers : {"8", "16", "32"}) add("A", workers, {1, 1});
  add("B", "8", {1.1, 1.2});
  add("B", "16", {1.3, 1.4});
  add("B", "32", {1.5, 1.6});  // the ratio grows by 0.2 per doubling
  Claim claim = ratio();
  claim.over = "cluster.workers";
  claim.per_doubling = true;
  claim.criterion = {.within = Interval{0.19, 0.21}};
  const ClaimResult result = judged(claim);
  EXPECT_EQ(result.verdict, Verdict::reproduced) << result.reason;
  EXPECT_NEAR(result.points.at(0).mean, 0.2, 1e-12);
  claim.per_doubling = false;
  claim.criterion = {.above = 0.0};
  // The slope of (8, 1.1), (16, 1.3) and (32, 1.5) is the sum of products of deviations, 4.8, divided by the sum of
  // squares, 896 / 3.
  EXPECT_NEAR(judged(claim).points.at(0).mean, 4.8 * 3 / 896, 1e-12);
}

// The measure is 1 + 3 sqrt(2 ln n). At n = 1, e^2 and e^8 the root is 0, 2 and 4, so the measure is 1, 7 and 13.
TEST_F(Claims, AreOfSlopesOverTheGrowthOfMaxima) {
  const double e = std::exp(1.0);
  add("A", "1", {1});
  add("A", fmt::format("{}", std::pow(e, 2)), {7});
  add("A", fmt::format("{}", std::pow(e, 8)), {13});
  Claim claim = ratio();
  claim.method = "A";
  claim.against = "";
  claim.effect = Effect::value;
  claim.over = "cluster.workers";
  claim.over_sqrt_log = true;
  claim.criterion = {.within = Interval{2.9, 3.1}};
  const ClaimResult result = judged(claim);
  ASSERT_EQ(result.points.size(), 1u) << result.reason;
  EXPECT_NEAR(result.points[0].mean, 3, 1e-9);
  add("A", "0.5", {1});
  EXPECT_THAT(judged(claim).reason, HasSubstr("cluster.workers = 0.5 is below 1"));
}

TEST_F(Claims, AreOfOrders) {
  add("A", "8", {3, 3.1});
  add("B", "8", {1, 1.1});
  Claim claim{.sentence = "s", .measure = "step_time_s", .method = {}, .against = {}, .order = {"B", "A"}};
  EXPECT_EQ(judged(claim).verdict, Verdict::reproduced);
  EXPECT_NEAR(judged(claim).points.at(0).mean, 2, 1e-12);
  claim.order = {"A", "B"};
  EXPECT_EQ(judged(claim).verdict, Verdict::not_reproduced);
}

// Seeds 0 and 1 are fastest with 16 workers, and seed 2 with 32.
TEST_F(Claims, AreOfBestValues) {
  add("A", "8", {3, 3, 3});
  add("A", "16", {1, 2, 2.5});
  add("A", "32", {2, 2, 2});
  Claim claim{.sentence = "s", .measure = "step_time_s", .method = "A", .against = {}, .effect = Effect::best};
  claim.over = "cluster.workers";
  claim.criterion = {.within = Interval{8, 32}};
  const JudgedPoint point = judged(claim).points.at(0);
  EXPECT_DOUBLE_EQ(point.mean, (16 + 16 + 32) / 3.0);
  claim.measure = "micro_batches_per_s";  // nothing was kept, so all values are equal and the lowest place counts
  EXPECT_DOUBLE_EQ(judged(claim).points.at(0).mean, 8);
  claim.measure = "time_to_target_s";
  EXPECT_EQ(judged(claim).reason, "\"A, workers = 8\", seed 0: has no time_to_target_s");
  for (FoundRun& run : runs_) run.summary.time_to_target = TimeToTarget{0.9, {}, {}, {}, {}};
  EXPECT_EQ(judged(claim).reason, "no run of \"A\" reached the target");
  for (FoundRun& run : runs_)
    if (run.configuration.at("cluster.workers") == "32") run.summary.time_to_target->time_s = 1;
  EXPECT_DOUBLE_EQ(judged(claim).points.at(0).mean, 32) << "what never got there is not the best";
}

// Five of the six differences are below 0, and one is exactly 0. The interval is [-0.0021, -0.00007]. Among the 64
// choices of signs, 4 have a mean at least as far from 0: the five signs are equal, and the sign of the 0 does not
// matter.
TEST_F(Claims, AreInconclusiveWhereSignFlipsDoNotAgreeWithTheInterval) {
  add("A", "8", {1, 1, 1, 1, 1, 1});
  add("B", "8", {0.9998, 0.9986, 1.0, 0.9994, 0.9976, 0.9981});
  Claim claim{.sentence = "s", .measure = "step_time_s", .method = "B", .against = "A", .effect = Effect::difference};
  claim.criterion = {.above = 0.0};
  const ClaimResult result = judged(claim);
  const JudgedPoint& point = result.points.at(0);
  EXPECT_LT(point.interval->high, 0);
  EXPECT_EQ(verdict_of(claim.criterion, claim.effect, point.interval), Verdict::not_reproduced);
  EXPECT_EQ(result.verdict, Verdict::inconclusive);
  ASSERT_TRUE(point.sign_flip_p);
  EXPECT_DOUBLE_EQ(*point.sign_flip_p, 4.0 / 64);
  EXPECT_EQ(result.reason, "the interval excludes one answer, sign flips of the 6 seeds do not: p = 0.062");
}

// The sign-flip test concerns only the bounds that decide the verdict. All six differences are clearly above -0.002 and
// below 0.002.
TEST_F(Claims, SignFlipsAreAskedAboutTheBoundsThatTheVerdictRestsOn) {
  add("A", "8", {1, 1, 1, 1, 1, 1});
  add("B", "8", {0.9998, 0.9986, 1.0, 0.9994, 0.9976, 0.9981});
  Claim claim{.sentence = "s", .measure = "step_time_s", .method = "B", .against = "A", .effect = Effect::difference};
  claim.criterion = {.below = 0.001};
  EXPECT_EQ(judged(claim).verdict, Verdict::reproduced);
  EXPECT_DOUBLE_EQ(judged(claim).points.at(0).sign_flip_p.value(), 2.0 / 64);
  claim.criterion = {.within = Interval{-0.003, 0.001}};
  EXPECT_EQ(judged(claim).verdict, Verdict::reproduced) << "all are above the one bound and below the other";
  claim.criterion = {.within = Interval{-0.0022, 0.001}};
  EXPECT_EQ(judged(claim).verdict, Verdict::inconclusive) << "one seed is below -0.0022";
  claim.criterion = {.within = Interval{0.001, 0.002}};
  EXPECT_EQ(judged(claim).verdict, Verdict::not_reproduced);
  EXPECT_DOUBLE_EQ(judged(claim).points.at(0).sign_flip_p.value(), 2.0 / 64);
  claim.criterion = {.margin = 0.0025};
  EXPECT_EQ(judged(claim).verdict, Verdict::reproduced) << "two one-sided tests, which have no sign flips";
  EXPECT_FALSE(judged(claim).points.at(0).sign_flip_p);
}

TEST_F(Claims, SignFlipsHaveNoSayInFiveSeedsNorWhereNothingVaries) {
  add("A", "8", {1, 1, 1, 1, 1});
  add("B", "8", {0.9, 0.91, 0.92, 0.93, 0.94});
  Claim claim = ratio();
  claim.criterion = {.below = 1.0};
  EXPECT_EQ(judged(claim).verdict, Verdict::reproduced);
  EXPECT_FALSE(judged(claim).points.at(0).sign_flip_p);
  runs_.clear();
  add("A", "8", {2, 2, 2, 2, 2, 2});
  claim = {.sentence = "s", .measure = "step_time_s", .method = "A", .against = {}};
  claim.criterion = {.within = Interval{2, 2}};
  EXPECT_EQ(judged(claim).verdict, Verdict::reproduced) << "it is just that, for every seed";
}

TEST_F(Claims, KeptFromBeforeSignFlipsHadASayAreShownAsJudgedByTheIntervalAlone) {
  add("A", "8", {1, 1, 1, 1, 1, 1});
  add("B", "8", {0.5, 0.51, 0.52, 0.53, 0.54, 0.55});
  Claim claim = ratio();
  claim.criterion = {.below = 0.8};
  JudgedClaims today{.experiment = "e", .description = "", .results = {judged(claim)}};
  const auto read = claims_from_json(to_json(today));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->results[0].points[0].sign_flip_p, today.results[0].points[0].sign_flip_p);
  const auto text = [](const JudgedClaims& claims) {
    return scoreboard_text(std::span(&claims, 1)) + scoreboard_table(std::span(&claims, 1)).markdown() +
           scoreboard_notes(std::span(&claims, 1));
  };
  EXPECT_THAT(text(*read), testing::Not(HasSubstr("t alone")));
  JudgedClaims before = *read;
  before.results[0].points[0].sign_flip_p.reset();
  EXPECT_THAT(text(before), testing::AllOf(HasSubstr("n = 6 (t alone)"), HasSubstr("reproduced (t alone) |"),
                                           HasSubstr("before a sign-flip test")));
}

// Numbers are sorted by size. Names keep the order of the sweep.
TEST_F(Claims, PointsFollowTheSweep) {
  for (const char* const workers : {"2048", "8", "64"}) add("A", workers, {1, 2});
  Claim claim{.sentence = "s", .measure = "step_time_s", .method = "A", .against = {}};
  claim.everywhere = true;
  claim.criterion = {.above = 0.0};
  const auto labels = [&] {
    std::vector<std::string> found;
    for (const JudgedPoint& point : judged(claim).points) found.push_back(point.label);
    return found;
  };
  EXPECT_THAT(labels(), testing::ElementsAre("A, workers = 8", "A, workers = 64", "A, workers = 2048"));
  runs_.clear();
  std::size_t index = 0;
  for (const char* const name : {"none", "10 Gbit/s", "2 Gbit/s", "bursts"}) {
    add("A", name, {1, 2});
    for (FoundRun& run : runs_)
      if (run.configuration.at("cluster.workers") == name) run.summary.point_index = index;
    ++index;
  }
  std::ranges::reverse(runs_);
  EXPECT_THAT(labels(), testing::ElementsAre("A, workers = none", "A, workers = 10 Gbit/s", "A, workers = 2 Gbit/s",
                                             "A, workers = bursts"));
}

TEST(Wanted, IsSaidInTheUnitThatIsShown) {
  Claim claim = ratio("final_test_accuracy");
  claim.effect = Effect::difference;
  claim.criterion = {.margin = 0.003};
  EXPECT_EQ(wanted_by(claim), "a difference within 0.3 points of 0");
  EXPECT_EQ(subject_of(claim), "final_test_accuracy, B less A");
  claim.effect = Effect::ratio;
  EXPECT_EQ(wanted_by(claim), "a ratio within 0.003 of 1");
  claim = {.sentence = "s", .measure = "drop_rate", .method = "B", .against = {}};
  claim.criterion = {.within = Interval{0.1, 0.2}};
  EXPECT_EQ(wanted_by(claim), "a value from 10 to 20 %");
  claim.over = "cluster.workers";
  claim.per_doubling = true;
  claim.criterion = {.below = 0.0};
  EXPECT_EQ(wanted_by(claim), "a slope per doubling below 0 points");
  EXPECT_EQ(subject_of(claim), "drop_rate, B, over cluster.workers");
}

TEST_F(Claims, AreShownInTheirUnits) {
  add("A", "8", {1, 1});
  for (FoundRun& run : runs_) run.summary.final_test_accuracy = run.summary.seed == 0 ? 0.88 : 0.9;
  Claim claim{.sentence = "s", .measure = "final_test_accuracy", .method = "A", .against = {}};
  claim.criterion = {.above = 0.8};
  EXPECT_THAT(our_figure(judged(claim)), testing::StartsWith("89 % ["));
}

TEST_F(Claims, AboutHoursAreShownInHours) {
  Claim claim{.sentence = "s", .measure = "end_time_s", .method = "A", .against = {}};
  claim.criterion = {.within = Interval{3600, 7200}};
  EXPECT_EQ(wanted_by(claim), "a value from 1 to 2 h");
  claim.criterion = {.within = Interval{3600, 7199}};
  EXPECT_EQ(wanted_by(claim), "a value from 3600 to 7199 s");
  add("A", "8", {9000, 9000});
  const ClaimResult result = judged(claim);
  EXPECT_EQ(wanted_by(claim, result.points), "a value from 1 to 1.99972 h");
  EXPECT_EQ(our_figure(result), "2.500 h [2.500, 2.500], n = 2");
  EXPECT_EQ(shown_effect(claim).unit, "s") << "claims.json keeps seconds";
  claim.measure = "steps";
  EXPECT_EQ(wanted_by(claim, result.points), "a value from 3600 to 7199 steps");
}

TEST_F(Claims, SayWhyTheyCannotBeJudged) {
  add("A", "8", {1});
  Claim claim = ratio();
  claim.criterion = {.below = 1.0};
  EXPECT_EQ(judged(claim).reason, "there is no finished run of \"B\"");
  add("B", "8", {0.5});
  EXPECT_EQ(judged(claim).reason, "one seed has no interval");
  claim.measure = "final_test_accuracy";
  EXPECT_EQ(judged(claim).reason, "\"B, workers = 8\", seed 0: has no final_test_accuracy");
  claim.measure = "time_to_target_s";
  for (FoundRun& run : runs_) run.summary.time_to_target = TimeToTarget{0.9, {}, {}, {}, {}};
  EXPECT_EQ(judged(claim).reason, "no run of \"B, workers = 8\" reached the target");
}

TEST_F(Claims, SayHowManyRunsMissedTheTarget) {
  add("A", "8", {1, 2, 3});
  add("B", "8", {1, 2, 3});
  for (FoundRun& run : runs_) run.summary.time_to_target = TimeToTarget{0.9, {}, 1.0, {}, {}};
  runs_[1].summary.time_to_target->time_s.reset();
  Claim claim = ratio("time_to_target_s");
  claim.criterion = {.below = 2.0};
  EXPECT_EQ(judged(claim).reason, "1 of 3 runs of \"A, workers = 8\" did not reach the target");
  runs_.erase(runs_.begin() + 4);  // B's run with the same seed
  EXPECT_EQ(judged(claim).points.at(0).n, 2u) << "a run without its pair is not asked";
  for (FoundRun& run : runs_) run.summary.time_to_target->time_s.reset();
  claim.against.clear();
  claim.effect = Effect::best;
  claim.over = "cluster.workers";
  EXPECT_EQ(judged(claim).reason, "no run of \"B\" reached the target");
}

// Both losses fall by the same factor per evaluation. A evaluates every 10 steps and 1 s, and B every 11 steps and 0.8
// s. So B needs 1.1 times the steps and 0.8 times the time to any loss. Test losses do not matter.
TEST_F(Claims, AreOfTimesToEqualLoss) {
  for (const char* const method : {"A", "B"}) add(method, "8", {1, 1});
  for (FoundRun& run : runs_) {
    const bool is_a = run.summary.method == "A";
    run.directory = directory_ / (run.summary.method + std::to_string(run.summary.seed));
    std::filesystem::create_directories(run.directory);
    std::ofstream metrics(run.directory / "metrics.csv");
    metrics << "step,time_s,test_loss,train_loss\n";
    for (int i = 0; i < 20; ++i)
      metrics << fmt::format("{},{},{},{}\n", (is_a ? 10 : 11) * i, (is_a ? 1.0 : 0.8) * i, is_a ? i : -i,
                             std::exp(-0.1 * i));
  }
  Claim claim = ratio(time_to_equal_loss);
  claim.criterion = {.below = 1.0};
  EXPECT_NEAR(judged(claim).points.at(0).mean, 0.8, 1e-12);
  claim.measure = steps_to_equal_loss;
  EXPECT_NEAR(judged(claim).points.at(0).mean, 1.1, 1e-12);
  EXPECT_EQ(judged(claim).verdict, Verdict::not_reproduced);
  // Smoothed over five evaluations, the losses are known from evaluation 2 to 17. A's mean evaluation at the levels is
  // 9.5.
  claim.effect = Effect::difference;
  EXPECT_NEAR(judged(claim).points.at(0).mean, 9.5, 1e-9);
  std::ofstream(directory_ / "B0" / "metrics.csv") << "step,time_s,train_loss\n0,0,1\n";
  EXPECT_THAT(judged(claim).reason,
              testing::StartsWith("for 1 of 2 seeds \"B, workers = 8\" and \"A, workers = 8\" have no equal losses: "));
}

TEST_F(Claims, AreReadBackFromTheirFile) {
  add("A", "8", {1, 2});
  add("B", "8", {0.5, 1.1});
  Claim claim = ratio();
  claim.criterion = {.within = Interval{0, 1}};
  claim.where = {{"cluster.workers", "8"}};
  claim.published = PublishedFigure{"half", "Table 1", "stated", 0.5};
  const JudgedClaims judged_claims{.experiment = "e", .description = "d", .results = {judged(claim)}};
  const auto read = claims_from_json(to_json(judged_claims));
  ASSERT_TRUE(read);
  EXPECT_EQ(to_json(*read), to_json(judged_claims));
  EXPECT_EQ(scoreboard_text(std::vector{*read}), scoreboard_text(std::vector{judged_claims}));
  EXPECT_THAT(scoreboard_text(std::vector{*read}), HasSubstr("paper:  half (Table 1; stated)\n"));
  EXPECT_FALSE(claims_from_json("{}"));
  EXPECT_FALSE(claims_from_json("[1"));
}

// Claims on times to a target that was missed in some seeds, from summaries made by hand.

using testing::HasSubstr;
using Times = std::array<std::optional<double>, 3>;

void add(std::vector<FoundRun>& runs, const std::string& method, double end_s, const Times& reached_s) {
  for (std::size_t seed = 0; seed < reached_s.size(); ++seed) {
    FoundRun run;
    run.summary.method = method;
    run.summary.method_index = method == "A" ? 0 : 1;
    run.summary.seed = seed;
    run.summary.end_time_s = end_s;
    run.summary.time_to_target = TimeToTarget{0.9, {}, reached_s.at(seed), {}, {}};
    runs.push_back(run);
  }
}

// B misses the target in seed 2 and ends at 7 s, which is the horizon. So A's times count as 7, 7 and 7.
class MissedTarget : public testing::Test {
 protected:
  MissedTarget() {
    add(runs_, "A", 20, {8, 9, 10});
    add(runs_, "B", 7, {5, 6, {}});
  }
  ClaimResult judged(Effect effect, const Criterion& criterion) const {
    Claim claim{.sentence = "s", .measure = "time_to_target_s", .method = "B", .against = "A", .effect = effect};
    claim.criterion = criterion;
    return judge(claim, result_rows(runs_));
  }

 private:
  std::vector<FoundRun> runs_;
};

TEST_F(MissedTarget, CountsUpToAHorizonWhereADirectionIsClaimed) {
  const ClaimResult ratio = judged(Effect::ratio, {.below = 1.0});
  EXPECT_NEAR(ratio.points.at(0).mean, std::cbrt(5 / 7.0 * 6 / 7.0), 1e-12);
  EXPECT_EQ(ratio.points[0].restricted, (Restriction{.horizon_s = 7, .own_reached = 2, .other_reached = 0}));
  EXPECT_NEAR(judged(Effect::difference, {.above = 0.0}).points.at(0).mean, -1, 1e-12);
}

TEST_F(MissedTarget, LeavesSizesOpen) {
  const std::string reason = "1 of 3 runs of \"B\" did not reach the target";
  EXPECT_EQ(judged(Effect::difference, {.below = -0.5}).reason, reason);
  EXPECT_EQ(judged(Effect::ratio, {.within = Interval{0.5, 1}}).reason, reason);
  EXPECT_EQ(judged(Effect::ratio, {.margin = 1}).reason, reason);
}

TEST_F(MissedTarget, IsShownAndReadBack) {
  const JudgedClaims claims{.experiment = "e", .description = "d", .results = {judged(Effect::ratio, {.below = 1.0})}};
  const auto read = claims_from_json(to_json(claims));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->results[0].points.at(0).restricted, claims.results[0].points[0].restricted);
  EXPECT_THAT(scoreboard_text(std::span(&*read, 1)), HasSubstr("n = 3 (up to 7 s, reached by 2 and 0)"));
  EXPECT_THAT(scoreboard_notes(std::span(&*read, 1)), HasSubstr("restricted means"));
}

// The number of steps to a target with another batch, compared with the closed form.

TEST(StepsByBatch, IsTheClosedFormWhereTheNoiseStaysTheSame) {
  const std::vector<MeasuredNoise> measured = {{Step{0}, 300}, {Step{40}, 300}};
  const auto found = steps_by_batch(measured, Step{100}, 100);
  ASSERT_TRUE(found);
  EXPECT_DOUBLE_EQ(found->least, 25);  // 100 / (1 + 300 / 100)
  for (const double batch : {1.0, 50.0, 100.0, 300.0, 1e6})
    EXPECT_DOUBLE_EQ(found->steps(batch), 25 * (1 + 300 / batch));
  EXPECT_DOUBLE_EQ(found->mean_noise_scale, 300);
}

TEST(StepsByBatch, AtTheRunsOwnBatchAreTheRunsOwnSteps) {
  const std::vector<MeasuredNoise> measured = {{Step{0}, 10}, {Step{30}, 200}, {Step{60}, 5000}, {Step{200}, 1}};
  const auto found = steps_by_batch(measured, Step{90}, 64);
  ASSERT_TRUE(found);
  EXPECT_NEAR(found->steps(64), 90, 1e-9);
  EXPECT_NEAR(found->mean_noise_scale, (10 + 200 + 5000) / 3.0, 1e-9);
  // Three phases of 30 steps each, converted to numbers of full-gradient steps.
  EXPECT_NEAR(found->least, 30 / (1 + 10 / 64.0) + 30 / (1 + 200 / 64.0) + 30 / (1 + 5000 / 64.0), 1e-9);
  EXPECT_GT(found->steps(32), 90);
  EXPECT_GT(found->steps(128), 45);  // twice the batch saves less than half of the 90 steps
}

TEST(StepsByBatch, NeedsAMeasurementBeforeTheTarget) {
  EXPECT_FALSE(steps_by_batch({}, Step{10}, 8));
  const std::vector<MeasuredNoise> late = {{Step{10}, 4}};
  EXPECT_FALSE(steps_by_batch(late, Step{10}, 8));
  EXPECT_NEAR(steps_by_batch(late, Step{11}, 8)->steps(8), 11, 1e-9);
}

}  // namespace
}  // namespace syncopate
