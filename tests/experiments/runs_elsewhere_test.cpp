// What two experiments compute alike is computed once.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

constexpr const char* quadratic = R"(seeds = [1]
[cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "quadratic"
learning_rate = {{ schedule = "constant", peak = {} }}
optimizer = {{ name = "sgd" }}
[budget]
steps = 5
[evaluation]
every_steps = 5
[[methods]]
algorithm = "sync-sgd"
label = "{}"
)";

class RunsElsewhere : public ProgramTest {
 protected:
  void SetUp() override {
    ProgramTest::SetUp();
    first_ = start("first", file("first", "one"));
    ASSERT_EQ(first_.status, 0) << first_.err;
  }

  static std::string file(const std::string& name, const std::string& label, double rate = 0.1) {
    return fmt::format("name = \"{}\"\n", name) + fmt::format(quadratic, rate, label);
  }
  ProgramOutcome start(const std::string& name, const std::string& text, const std::string& options = "") const {
    return syncopate("run " + write(name + ".toml", text) + " " + options);
  }
  // The only run of the method.
  fs::path directory_of(const std::string& experiment, const std::string& method) const {
    const fs::path of_method = directory / "results/runs" / experiment / method;
    EXPECT_TRUE(fs::exists(of_method)) << of_method;
    return fs::directory_iterator(of_method)->path();
  }
  std::string text_of(const fs::path& path) const { return read(fs::relative(path, directory)); }
  nlohmann::json json_of(const fs::path& path) const { return nlohmann::json::parse(text_of(path)); }
  bool was_copied(const std::string& experiment, const std::string& method) const {
    return json_of(directory_of(experiment, method) / "metadata.json").contains("copied_from");
  }

  ProgramOutcome first_;
};

TEST_F(RunsElsewhere, AreCopiedUnderTheNewNames) {
  const ProgramOutcome second = start("second", file("second", "two"));
  EXPECT_EQ(second.status, 0);
  EXPECT_THAT(second.err,
              HasSubstr("1 of 1 runs are there already, in results/runs (1 copied from other experiments)"));
  EXPECT_THAT(second.err, Not(HasSubstr("begins")));
  EXPECT_THAT(second.out, HasSubstr("two"));
  const fs::path from = directory_of("first", "one");
  const fs::path to = directory_of("second", "two");
  const auto summary = json_of(to / "summary.json");
  EXPECT_EQ(summary["experiment"], "second");
  EXPECT_EQ(summary["method"], "two");
  EXPECT_NE(summary["hash"], json_of(from / "summary.json")["hash"]);
  const auto metadata = json_of(to / "metadata.json");
  EXPECT_EQ(metadata["configuration_hash"], summary["hash"]);
  EXPECT_EQ(metadata["copied_from"], fs::relative(from, directory / "results/runs").generic_string());
  EXPECT_THAT(text_of(to / "config.toml"), HasSubstr("name = \"second\""));
  EXPECT_THAT(text_of(to / "config.toml"), HasSubstr("label = \"two\""));
  for (const char* rows : {"steps.csv", "metrics.csv"}) EXPECT_EQ(text_of(to / rows), text_of(from / rows));
}

// The copy is what the second experiment would have computed itself.
TEST_F(RunsElsewhere, AreWhatWouldHaveBeenComputed) {
  start("second", file("second", "two"));
  auto copied = json_of(directory_of("second", "two") / "summary.json");
  start("second", file("second", "two"), "--rerun");
  ASSERT_FALSE(was_copied("second", "two"));
  auto computed = json_of(directory_of("second", "two") / "summary.json");
  for (auto* summary : {&copied, &computed})
    for (const char* of_host : {"host_s", "samples_per_host_s"}) summary->erase(of_host);
  EXPECT_EQ(copied, computed);
}

TEST_F(RunsElsewhere, AreTakenForFinishedOnes) {
  start("second", file("second", "two"));
  const ProgramOutcome again = start("second", file("second", "two"));
  EXPECT_THAT(again.err, HasSubstr("1 of 1 runs are there already, in results/runs; --rerun"));
  EXPECT_EQ(syncopate("table results/runs/second").status, 0);
}

TEST_F(RunsElsewhere, AreFoundWhereAMethodHasTheKeysItself) {
  start("second", file("second", "two", 0.3) + "training = { learning_rate = { peak = 0.1 } }\n");
  EXPECT_TRUE(was_copied("second", "two"));
  EXPECT_TRUE(json_of(directory_of("second", "two") / "summary.json").contains("own_training"));
}

TEST_F(RunsElsewhere, AreFoundAfterAMethodGotAnotherLabel) {
  start("first", file("first", "one of another name"));
  EXPECT_TRUE(was_copied("first", "one-of-another-name"));
}

TEST_F(RunsElsewhere, AreOthersWithOtherNumbers) {
  start("second", file("second", "two", 0.2));
  EXPECT_FALSE(was_copied("second", "two"));
}

TEST_F(RunsElsewhere, AreMadeWhereTheyLackWhatIsToBeRecorded) {
  start("second", file("second", "two") + "[recording]\nparameters = true\n");
  EXPECT_FALSE(was_copied("second", "two"));
  start("third", file("third", "three") + "[recording]\ntrace = true\n");
  EXPECT_FALSE(was_copied("third", "three"));
  start("fourth", file("fourth", "four") + "[recording]\nparameters = true\n");
  EXPECT_TRUE(was_copied("fourth", "four"));
  EXPECT_TRUE(fs::exists(directory_of("fourth", "four") / "parameters.npy"));
}

TEST_F(RunsElsewhere, AreNotCopiedWhereTheyAreDamaged) {
  std::ofstream(directory_of("first", "one") / "steps.csv") << "";
  const ProgramOutcome second = start("second", file("second", "two"));
  EXPECT_EQ(second.status, 0);
  EXPECT_FALSE(was_copied("second", "two"));
}

TEST_F(RunsElsewhere, AreCopiedAsCommonPhases) {
  constexpr const char* common = "[training.common]\nsteps = 3\n";
  start("second", file("second", "two") + common);
  EXPECT_FALSE(was_copied("second", "common-phase"));
  start("third", file("third", "three", 0.2) + common + "learning_rate = { peak = 0.1 }\n");
  EXPECT_TRUE(was_copied("third", "common-phase"));
  EXPECT_FALSE(was_copied("third", "three"));
}

}  // namespace
}  // namespace syncopate
