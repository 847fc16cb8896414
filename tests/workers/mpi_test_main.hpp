// The main function of a test program that runs under mpirun. Rank 0 reports; other ranks print only their failures.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "workers/base/machine.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}
  void OnTestStart(const testing::TestInfo& test) override { test_ = test.name(); }
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    std::fprintf(stderr, "rank %d, %s: %s:%d\n%s\n", rank_, test_.c_str(),
                 result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
  }

 private:
  int rank_;
  std::string test_ = "no test";  // own copy: asking GoogleTest in a listener would deadlock
};

inline int run_tests_under_mpi(int argc, char** argv, const MpiSession& session) {
  testing::InitGoogleTest(&argc, argv);
  if (session.rank() > 0) {
    auto& listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new FailuresOnly(session.rank()));
  }
  return RUN_ALL_TESTS();
}

}  // namespace syncopate
