// The papers' experiments that take seconds, since they are on virtual time alone: their claims are reproduced. Seeds
// fix the numbers, so that another verdict is a change of the program.
#include <gmock/gmock.h>

#include <filesystem>
#include <set>
#include <string>

#include "tests/experiments/program.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;
using Paper = ProgramTest;

TEST_F(Paper, WhatTakesSecondsIsReproduced) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SYNCOPATE_SOURCE_DIR "/experiments/paper")) {
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    if (entry.path().extension() != ".toml" || text.str().find("model = \"none\"") == std::string::npos) continue;
    SCOPED_TRACE(entry.path());
    const ProgramOutcome run = syncopate("run '" + entry.path().string() + "' --quiet --results results");
    EXPECT_EQ(run.status, 0) << run.err;
    EXPECT_THAT(run.out, HasSubstr(" 0 not reproduced, 0 inconclusive."));
    ++files;
  }
  EXPECT_GE(files, 4);
  EXPECT_THAT(syncopate("claims results").out, HasSubstr(" 0 not reproduced, 0 inconclusive."));
}

}  // namespace
}  // namespace syncopate
