#include <gtest/gtest.h>

#include "workers/mpi/mpi_process.hpp"

namespace syncopate {
namespace {

std::vector<StepRow> rows_of(const std::vector<std::vector<StepRow>>& by_worker) {
  struct Seen : RunObserver {
    std::vector<StepRow> rows;
    void on_row(const StepRow& row) override { rows.push_back(row); }
    void on_publish(const Publication&) override {}
  } seen;
  StepRows rows(&seen);
  close_rows(by_worker, rows);
  return seen.rows;
}

Time at(int nanoseconds) { return start_time + Duration{nanoseconds}; }

TEST(StepRows, RowsOfEqualNumberAreSummedAndEndWithTheLast) {
  const auto rounds = rows_of({{{.step = 1, .end = at(100), .kept = 2, .dropped = 0, .period = 1, .bytes = 10},
                                {.step = 2, .end = at(250), .kept = 1, .dropped = 1, .period = 1, .bytes = 30}},
                               {{.step = 1, .end = at(170), .kept = 1, .dropped = 1, .period = 1, .bytes = 5},
                                {.step = 2, .end = at(200), .kept = 2, .dropped = 0, .period = 3, .bytes = 5}}});
  ASSERT_EQ(rounds.size(), 2u);
  EXPECT_EQ(rounds[0].step, Step{1});
  EXPECT_EQ(rounds[0].kept, 3);
  EXPECT_EQ(rounds[0].dropped, 1);
  EXPECT_EQ(rounds[0].end, start_time + Duration{170});
  EXPECT_EQ(rounds[0].duration, Duration{170});
  EXPECT_EQ(rounds[0].bytes, Bytes{15});
  EXPECT_EQ(rounds[1].end, start_time + Duration{250});
  EXPECT_EQ(rounds[1].duration, Duration{80});
  EXPECT_EQ(rounds[1].period, Step{3});
  EXPECT_EQ(rounds[1].bytes, Bytes{20});
}

// A worker may pass steps over, or end before the others.
TEST(StepRows, StepsThatNotAllHaveTakenAreRowsToo) {
  const auto rounds = rows_of({{{.step = 1, .end = at(900), .kept = 1, .bytes = 4}},
                               {{.step = 1, .end = at(100), .kept = 1, .bytes = 1},
                                {.step = 2, .end = at(200), .kept = 1, .bytes = 2},
                                {.step = 5, .end = at(1000), .kept = 1, .bytes = 8}},
                               {}});
  ASSERT_EQ(rounds.size(), 3u);
  EXPECT_EQ(rounds[0].kept, 2);
  EXPECT_EQ(rounds[1].step, Step{2});
  EXPECT_EQ(rounds[1].kept, 1);
  EXPECT_EQ(rounds[1].end, start_time + Duration{900});  // time does not go back
  EXPECT_EQ(rounds[1].duration, Duration{0});
  EXPECT_EQ(rounds[1].bytes, Bytes{1});
  EXPECT_EQ(rounds[2].step, Step{5});
  EXPECT_EQ(rounds[2].duration, Duration{100});
  EXPECT_EQ(rounds[2].bytes, Bytes{6});
}

TEST(StepRows, NobodysRowsAreNone) { EXPECT_TRUE(rows_of({{}, {}}).empty()); }

}  // namespace
}  // namespace syncopate
