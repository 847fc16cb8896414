// The table `compression` of methods that average models: what it reads, and what it refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/algorithms/compressed_averages.hpp"
#include "tests/algorithms/method_settings.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

std::string faults_of(const std::string& compression, const std::string& method, bool time_only = false) {
  return read_method(method + "\ncompression = " + compression, {.workers = 4, .time_only = time_only}).faults;
}

TEST(CompressedAveragesSettings, AreReadForMethodsThatAverageModels) {
  const std::string period = "\nperiod = { rule = \"constant\", steps = 3 }";
  const std::string outer = "\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.5 }";
  for (const std::string& method :
       {local_sgd, "algorithm = \"outer-local-sgd\"" + period + outer, "algorithm = \"cocod-sgd\"" + period,
        "algorithm = \"overlap-local-sgd\"\nmixing = 0.5" + period, "algorithm = \"co2\"" + period,
        "algorithm = \"overlapped-diloco\"" + period + outer, "algorithm = \"palsgd\"" + period + outer,
        std::string("algorithm = \"adacomm\"\ninitial_period = 4")}) {
    for (const char* compression :
         {"{ name = \"top-k\", ratio = 0.1 }", "{ name = \"random-k\", ratio = 0.1, error_feedback = false }",
          "{ name = \"sign\" }", "{ name = \"qsgd\" }", "{ name = \"int8\", range_std = 6 }",
          "{ name = \"fp4\", rounding = \"random\", error_feedback = true }"})
      EXPECT_EQ(faults_of(compression, method), "") << method << compression;
    const bool waits = read_method(method).algorithm->traits().waits_for_averages;
    EXPECT_EQ(faults_of("{ name = \"sign\", exchange = \"two-phase\" }", method).empty(), waits) << method;
    EXPECT_THAT(faults_of("{ name = \"powersgd\" }", method), HasSubstr("those of sums of gradients alone"));
    EXPECT_THAT(faults_of("{ name = \"scalecom\", ratio = 0.1 }", method),
                HasSubstr("those of sums of gradients alone"));
    EXPECT_THAT(faults_of("{ name = \"majority\" }", method), HasSubstr("has no length"));
    EXPECT_THAT(faults_of("{ name = \"dgc\", ratio = 0.1 }", method), HasSubstr("test.toml:"));
  }
}

// Neither is in what was read, so that a method without the table is the one that it was.
TEST(CompressedAveragesSettings, WithoutATableAreDense) {
  EXPECT_THAT(read_method(local_sgd).resolved, testing::Not(HasSubstr("compression")));
  EXPECT_FALSE(read_method(local_sgd).algorithm->compression());
  EXPECT_FALSE(read_method(local_sgd + "\ncompression = { name = \"none\" }").algorithm->compression());
  EXPECT_THAT(faults_of("{ ratio = 0.1 }", local_sgd), HasSubstr("ratio"));
}

TEST(CompressedAveragesSettings, AreRefusedWithTheirPlace) {
  EXPECT_THAT(faults_of("{ name = \"int8\" }", local_sgd + "\nmoments = \"average\""),
              testing::AllOf(HasSubstr("test.toml:4:"), HasSubstr("where moments are averaged")));
  EXPECT_THAT(faults_of("{ name = \"int8\" }",
                        "algorithm = \"hierarchical-sgd\"\ngroup_size = 2\ngroup_period = 1\n"
                        "period = { rule = \"constant\", steps = 3 }"),
              HasSubstr("averages of groups and of all would each need a residual of their own"));
  EXPECT_THAT(faults_of("{ name = \"int8\", range_std = 0 }", local_sgd), HasSubstr("range_std = 0"));
  EXPECT_THAT(faults_of("{ name = \"fp4\", bucket = 0 }", local_sgd), HasSubstr("bucket = 0"));
  EXPECT_THAT(faults_of("{ name = \"fp4\", rounding = \"down\" }", local_sgd), HasSubstr("nearest"));
  EXPECT_THAT(faults_of("{ name = \"fp4\", scope = \"tensor\" }", local_sgd), HasSubstr("scope"));
  EXPECT_THAT(faults_of("{ name = \"top-k\", ratio = 0.1, residual = \"step\" }", local_sgd), HasSubstr("residual"));
  EXPECT_THAT(faults_of("{ name = \"int8\", scope = \"tensor\" }", local_sgd, true), HasSubstr("needs a model"));
}

}  // namespace
}  // namespace syncopate
