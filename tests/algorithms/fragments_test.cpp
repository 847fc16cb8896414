#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "algorithms/local_sgd/rounds.hpp"
#include "tests/algorithms/simulated_run.hpp"
#include "workers/config/settings.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

TEST(Fragments, CoverTheModelOnce) {
  for (const int count : {1, 3, 7}) {
    const Fragments fragments(count);
    std::int64_t next = 0;
    for (int p = 0; p < count; ++p) {
      EXPECT_EQ(fragments.slice(p).begin(7), next);
      next = fragments.slice(p).end(7);
      EXPECT_GT(next, fragments.slice(p).begin(7));
    }
    EXPECT_EQ(next, 7);
  }
}

TEST(Fragments, TakeTurnsThroughARound) {
  const auto offsets = [](int count, Step round) {
    std::vector<std::int64_t> result;
    for (int p = 0; p < count; ++p) result.push_back(Fragments(count).offset(p, round).value());
    return result;
  };
  EXPECT_EQ(offsets(4, 12), (std::vector<std::int64_t>{3, 6, 9, 12}));
  EXPECT_EQ(offsets(4, 10), (std::vector<std::int64_t>{3, 5, 8, 10}));  // 2.5, 5, 7.5, 10
  EXPECT_EQ(offsets(1, 7), (std::vector<std::int64_t>{7}));
  EXPECT_EQ(offsets(5, 2), (std::vector<std::int64_t>{1, 1, 2, 2, 2}));  // 0.4, 0.8, 1.2, 1.6, 2
  constexpr std::int64_t endless = std::numeric_limits<std::int64_t>::max() / 2;
  EXPECT_EQ(Fragments(1'000'000).offset(999'999, Step{endless}), Step{endless});
}

class Checked : public Algorithm {
 public:
  explicit Checked(Fragments fragments) : fragments_(std::move(fragments)) {}
  void run(Worker& worker) const override { fragments_.check(worker); }

 private:
  Fragments fragments_;
};

// SimulatedRun's model has four parameters.
TEST(Fragments, MoreThanParametersAreAFaultAtTheirPlace) {
  SettingsDocument document(parse_toml("fragments = 5", "test.toml"));
  Settings settings = document.root();
  const Fragments five = read_fragments(settings, 1);
  EXPECT_EQ(document.check().report(), "");
  for (const bool has_model : {true, false}) {
    SimulatedRun setup;
    if (!has_model) setup.objective = nullptr;
    setup.run(Checked(Fragments(4)));
    try {
      setup.run(Checked(five));
      ADD_FAILURE() << "has no fault";
    } catch (const std::exception& fault) {
      EXPECT_THAT(fault.what(), testing::HasSubstr("test.toml:1:13: fragments = 5; the model has 4 parameters"));
    }
  }
}

// Where it is known how many the model has, before it is there.
TEST(Fragments, MoreThanParametersAreRefusedWithTheirPlace) {
  const auto report = [](std::int64_t parameters) {
    SettingsDocument document(parse_toml("fragments = 5", "test.toml"));
    Settings settings = document.root();
    read_fragments(settings, 1, parameters);
    return document.check().report();
  };
  EXPECT_THAT(report(4), testing::HasSubstr("test.toml:1:13: fragments = 5; must be at most 4"));
  EXPECT_EQ(report(5), "");
}

TEST(Fragments, AreAtLeastOne) {
  SettingsDocument document(parse_toml("fragments = 0", "test.toml"));
  Settings settings = document.root();
  read_fragments(settings, 1);
  EXPECT_THAT(document.check().report(), testing::HasSubstr("test.toml:1:13: fragments = 0; must be"));
}

}  // namespace
}  // namespace syncopate
