// main of a test program that runs under mpirun: only rank 0 reports, other ranks speak up when
// something is wrong with them.
#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>

#include "workers/blas_kernel.hpp"
#include "workers/mpi/mpi_session.hpp"

namespace syncopate {

class FailuresOnly : public testing::EmptyTestEventListener {
 public:
  explicit FailuresOnly(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (!result.failed()) return;
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    std::fprintf(stderr, "rank %d, %s: %s:%d\n%s\n", rank_, test ? test->name() : "no test",
                 result.file_name() ? result.file_name() : "?", result.line_number(), result.message());
  }

 private:
  int rank_;
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
