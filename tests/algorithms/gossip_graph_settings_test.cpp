// The table `graph`, as it is written, and what is wrong with one.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "algorithms/gossip/graph.hpp"
#include "tests/algorithms/kicked_workers.hpp"
#include "tests/algorithms/method_settings.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

constexpr const char* d_psgd = "decentralized-sgd";
constexpr const char* sgp = "stochastic-gradient-push";

MethodReading reading(const std::string& method, const std::string& graph, int workers) {
  return read_method("algorithm = \"" + method + "\"\ngraph = { " + graph + " }", {.workers = workers});
}

class GraphSettings : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() / fmt::format("syncopate-graph-{}", getpid());
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  // The table for a file of this content.
  std::string file(const std::string& content, const std::string& keys = "") const {
    std::filesystem::create_directories(folder_);
    const auto path = folder_ / "links.csv";
    std::ofstream(path) << content;
    return fmt::format("kind = \"file\", file = \"{}\"{}", path.string(), keys);
  }

 private:
  std::filesystem::path folder_;
};

TEST_F(GraphSettings, EachKindIsRead) {
  for (const std::string method : {d_psgd, sgp})
    for (const std::string kind : {"ring", "torus", "hypercube", "exponential", "one-peer-exponential", "complete"})
      EXPECT_EQ(reading(method, "kind = \"" + kind + "\"", 16).faults, "") << method << kind;
  EXPECT_EQ(reading(d_psgd, "kind = \"torus\", rows = 2", 10).faults, "");
  EXPECT_EQ(read_method("algorithm = \"decentralized-sgd\"").resolved.find("graph"), std::string::npos);
}

// 12 workers in 3 rows of 4: 4 messages per worker and step, on the ring it would be 2.
TEST_F(GraphSettings, TheGraphThatIsReadIsThatOfTheRun) {
  const auto method = reading(d_psgd, "kind = \"torus\"", 12);
  EXPECT_THAT(method.resolved, HasSubstr("rows = 3"));
  const SimulatedRun setup{.workers = 12, .budget = {.steps = 3}, .objective = nullptr};
  EXPECT_EQ(setup.run(*method.algorithm).totals.messages, 3 * 12 * 4 + 11);
  EXPECT_EQ(setup.run(*reading(d_psgd, "kind = \"torus\", rows = 2", 12).algorithm).totals.messages, 3 * 12 * 3 + 11);
}

TEST_F(GraphSettings, WorkersThatDoNotFitTheGraphAreFaults) {
  EXPECT_THAT(
      reading(d_psgd, "kind = \"torus\", rows = 3", 8).faults,
      HasSubstr("test.toml:2:34: graph.rows = 3; must divide the number of workers, 8, into rows of at least 2"));
  EXPECT_THAT(reading(sgp, "kind = \"torus\", rows = 4", 4).faults, HasSubstr("into rows of at least 2"));
  EXPECT_THAT(reading(d_psgd, "kind = \"torus\"", 7).faults,
              HasSubstr("needs a number of workers that can be laid into rows of at least 2, found 7"));
  EXPECT_THAT(reading(d_psgd, "kind = \"hypercube\"", 12).faults,
              HasSubstr("graph.kind = \"hypercube\"; needs a power of two workers, found 12"));
  EXPECT_THAT(reading(d_psgd, "kind = \"rings\"", 4).faults, HasSubstr("did you mean \"ring\""));
  EXPECT_THAT(reading(d_psgd, "rows = 2", 4).faults, HasSubstr("graph.kind"));
}

// Whose links alone count.
TEST_F(GraphSettings, OfGraphsForPairsTwoSidesAreNeeded) {
  const auto faults = [](const std::string& table) { return reading("ad-psgd", table, 4).faults; };
  EXPECT_EQ(faults(file("from,to\n1,0\n1,2\n3,1\n")), "");
  EXPECT_THAT(faults(file("from,to\n1,0\n1,2\n0,2\n2,3\n")), HasSubstr("must have two sides"));
  EXPECT_THAT(faults(file("from,to\n0,1\n2,3\n")), HasSubstr("must be connected"));
  EXPECT_THAT(faults("kind = \"complete\""), HasSubstr("kind = \"complete\"; must be"));
  EXPECT_THAT(faults(file("from,to\n1,0\n1,2\n3,1\n", ", weights = \"given\"")), HasSubstr("graph.weights"));
}

// A star: the hub has a third of itself left, and metropolis gives each link a third.
TEST_F(GraphSettings, AFileOfLinksIsTheGraph) {
  const std::string star = "# the hub is 1\nfrom,to\n1,0\n1,2\n3,1\n";
  EXPECT_EQ(reading(sgp, file(star), 4).faults, "");
  const auto method = reading(d_psgd, file(star, ", weights = \"metropolis\""), 4);
  ASSERT_EQ(method.faults, "");
  EXPECT_THAT(method.resolved, HasSubstr("file_hash"));
  const auto run = run_kicked({.workers = 4, .budget = {.steps = 2}}, *method.algorithm);
  const std::vector<std::vector<float>> quarters = {
      {0.75f, 0.25f, 0, 0}, {0.25f, 0.25f, 0.25f, 0.25f}, {0, 0.25f, 0.75f, 0}, {0, 0.25f, 0, 0.75f}};
  EXPECT_EQ(run.models, quarters);
}

TEST_F(GraphSettings, GivenWeightsAreThoseOfTheMixing) {
  const auto method = reading(
      d_psgd, file("to,from,weight\n1,0,0.125\n2,1,0.125\n0,2,0.125\n", ", directed = true, weights = \"given\""), 3);
  ASSERT_EQ(method.faults, "");
  const auto run = run_kicked({.workers = 3, .budget = {.steps = 2}}, *method.algorithm);
  const std::vector<std::vector<float>> expected = {{0.875f, 0, 0.125f}, {0.125f, 0.875f, 0}, {0, 0.125f, 0.875f}};
  EXPECT_EQ(run.models, expected);
}

TEST_F(GraphSettings, AGraphThatDoesNotMixAsItsMethodNeedsIsAFault) {
  const auto faults = [](const std::string& method, const std::string& table) {
    return reading(method, table, 4).faults;
  };
  const std::string halves = "from,to\n0,1\n2,3\n";
  EXPECT_THAT(faults(d_psgd, file(halves)), HasSubstr("must be connected: nothing comes from worker 0 to worker 2"));
  EXPECT_THAT(faults(sgp, file(halves)), HasSubstr("must be connected"));
  EXPECT_THAT(faults(sgp, file("from,to\n0,1\n1,2\n2,0\n1,3\n", ", directed = true")),
              HasSubstr("must be connected: nothing comes from worker 3 to worker 0"));

  const std::string star = "from,to\n1,0\n1,2\n3,1\n";
  EXPECT_THAT(faults(d_psgd, file(star)),
              HasSubstr("must be doubly stochastic: worker 0 gives others 0.5 of its model and takes 0.25; weights = "
                        "\"metropolis\" are"));
  EXPECT_EQ(faults(sgp, file(star)), "");

  const std::string heavy = "from,to,weight\n0,1,0.5\n1,2,0.5\n2,3,0.5\n";
  EXPECT_THAT(faults(sgp, file(heavy, ", weights = \"given\"")),
              HasSubstr("must leave each worker a part of its own: worker 1 gives others 1 of its model"));
}

TEST_F(GraphSettings, AFileThatIsNoGraphIsAFaultOfItsLine) {
  const auto faults = [&](const std::string& content, const std::string& keys = "") {
    return reading(d_psgd, file(content, keys), 4).faults;
  };
  EXPECT_THAT(faults("a,b\n0,1\n"), HasSubstr("links.csv:1: the column from is missing"));
  EXPECT_THAT(faults("from,to\n0,1\n", ", weights = \"given\""), HasSubstr("the column weight is missing"));
  const std::string weighted = "# a path\nweight,from,to\n0.5,0,1\n0.5,1,2\n0.5,2,3\n";
  EXPECT_THAT(faults(weighted), HasSubstr("links.csv:2: there is a column weight; set weights = \"given\" to read it"));
  EXPECT_EQ(faults(weighted, ", weights = \"metropolis\""), "");
  EXPECT_EQ(reading("ad-psgd", file(weighted), 4).faults, "") << "where pairs meet there are no weights";
  EXPECT_THAT(faults("from,to\n0,4\n"), HasSubstr("links.csv:2: to = 4; must be an integer from 0 to 3"));
  EXPECT_THAT(faults("from,to\n0,x\n"), HasSubstr("links.csv:2: to = x; must be a finite number"));
  EXPECT_THAT(faults("from,to\n0,1\n1,0\n"), HasSubstr("links.csv:3: the link of 1 and 0 stands twice"));
  EXPECT_THAT(faults("from,to\n2,2\n"), HasSubstr("links.csv:2: links worker 2 with itself; must link two workers"));
  EXPECT_THAT(faults("from,to,weight\n0,1,1.5\n", ", weights = \"given\""),
              HasSubstr("links.csv:2: weight = 1.5; must be above 0 and below 1"));
  EXPECT_THAT(faults(""), HasSubstr("the file is empty"));
  EXPECT_THAT(reading(d_psgd, "kind = \"file\", file = \"nowhere.csv\"", 4).faults, HasSubstr("there is no file"));
  EXPECT_THAT(reading(d_psgd, "kind = \"file\"", 4).faults, HasSubstr("graph.file"));
  EXPECT_THAT(faults("from,to\n0,1\n1,2\n2,3\n", ", directed = true, weights = \"metropolis\""),
              HasSubstr("must be \"degree\" or \"given\" where links go one way"));
  EXPECT_THAT(reading(d_psgd, file("from,to\n0,1\n"), 513).faults, HasSubstr("file is for at most 512 workers"));
}

}  // namespace
}  // namespace syncopate
