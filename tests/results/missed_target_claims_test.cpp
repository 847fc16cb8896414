// Claims on times to a target that some seeds did not reach, from summaries that are made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "results/claims.hpp"
#include "results/scoreboard.hpp"

namespace syncopate {
namespace {

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

// B misses the target in seed 2 by its end at 7 s, up to which all runs are known: of A's times 7, 7, 7 are left.
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
  EXPECT_NEAR(ratio.points.at(0).mean, (5 / 7.0 + 6 / 7.0 + 1) / 3, 1e-12);
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
  const JudgedClaims claims{
      .experiment = "e", .description = "d", .at = {}, .results = {judged(Effect::ratio, {.below = 1.0})}};
  const auto read = claims_from_json(to_json(claims));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->results[0].points.at(0).restricted, claims.results[0].points[0].restricted);
  EXPECT_THAT(scoreboard_text(std::span(&*read, 1)), HasSubstr("n = 3 (up to 7 s, reached by 2 and 0)"));
  EXPECT_THAT(scoreboard_notes(std::span(&*read, 1)), HasSubstr("restricted means"));
}

}  // namespace
}  // namespace syncopate
