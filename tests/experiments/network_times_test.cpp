// A network over which a model never arrives: the fault names the key, and its line, that the time is due to.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

using testing::HasSubstr;

TEST_F(ExperimentFile, ANetworkThatTakesForEverIsNamedByItsKey) {
  struct Case {
    const char* network;
    const char* fault;
  };
  // Four workers: a ring has 6 rounds, and a latency each; a tree 4.
  const Case cases[] = {
      {"kind=\"ring\", latency_s=0, bandwidth_bytes_per_s=1e-9", "network.bandwidth_bytes_per_s = 1e-09; must let a"},
      {"kind=\"ring\", latency_s=5e8, bandwidth_bytes_per_s=1e9", "network.latency_s = 500000000.0; must let a"},
      {"kind=\"tree\", latency_s=1, bandwidth_bytes_per_s=1e9, serial_s=1e9", "network.serial_s = 1000000000.0; must"},
      {"kind=\"ring\", latency_s=1e6, bandwidth_bytes_per_s=1e9, jitter=900", "network.jitter = 900; must let a"},
      {"kind=\"fixed\", latency_s=9e8, jitter=1", "network.jitter = 1; must let a"},
      {"kind=\"two-level\", group_size=2, latency_s=1, bandwidth_bytes_per_s=1e9, "
       "inside={latency_s=1, bandwidth_bytes_per_s=1e-9}",
       "network.inside.bandwidth_bytes_per_s = 1e-09; must let a"},
      {"kind=\"two-level\", group_size=2, latency_s=1, bandwidth_bytes_per_s=1e9, "
       "inside={latency_s=9e8, bandwidth_bytes_per_s=1e9}",
       "network.inside.latency_s = 900000000.0; must let a"},
      {"kind=\"two-level\", group_size=2, latency_s=9e8, bandwidth_bytes_per_s=1e9, "
       "inside={latency_s=1, bandwidth_bytes_per_s=1e9}",
       "network.latency_s = 900000000.0; must let a"},
      {"kind=\"parameter-server\", latency_s=0, bandwidth_bytes_per_s=1e-9", "network.bandwidth_bytes_per_s = 1e-09;"},
  };
  for (const auto& [network, fault] : cases)
    EXPECT_THAT(faults({std::string("network={") + network + "}"}), HasSubstr(fault)) << network;
  EXPECT_EQ(faults({"network={kind=\"ring\", latency_s=1e8, bandwidth_bytes_per_s=1e9}"}), "");
}

}  // namespace
}  // namespace syncopate
