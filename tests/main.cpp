#include <gtest/gtest.h>

#include <cstdlib>

#include "workers/base/machine.hpp"

int main(int argc, char** argv) {
  syncopate::use_best_blas_kernel(argv);
  testing::InitGoogleTest(&argc, argv);
  // The user's cache gets no digests of the tests' own data sets, neither from tests nor from programs that they start.
  ::setenv("XDG_CACHE_HOME", (testing::TempDir() + "syncopate-test-cache").c_str(), 1);
  return RUN_ALL_TESTS();
}
