// What names a micro-batch whose time is to be measured: all that decides its arithmetic, and nothing else, so that a
// measurement is used again where it holds and only there.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "tests/experiments/experiment_file.hpp"

namespace syncopate {
namespace {

struct MeasuredTime : ExperimentFile {
  // Of each measurement that an experiment asks for.
  std::set<std::string> keys(Overrides overrides) const {
    std::set<std::string> result;
    LoadOptions options;
    options.measure = [&](const MicroBatchWork& work) {
      result.insert(work.key);
      return MeasuredMicroBatch{.micro_batch_s = 0.01};
    };
    overrides.push_back("cluster.micro_batch_s=measured");
    load_experiment(file, overrides, options);
    return result;
  }
};

TEST_F(MeasuredTime, IsAnotherOneWhereTheArithmeticIs) {
  const auto usual = keys({});
  EXPECT_EQ(usual.size(), 1u);
  std::set<std::string> all = usual;
  std::size_t count = 1;
  for (const std::string change :
       {"training.micro_batch_size=16", "training.model=mlp", "datasets.gaussian-mixture.dimension=7"}) {
    all.merge(keys({change}));
    EXPECT_EQ(all.size(), ++count) << change;
  }
  all.merge(keys({"training.model=mlp", "models.mlp.hidden=[9]"}));
  EXPECT_EQ(all.size(), ++count) << "the width of the model";
}

TEST_F(MeasuredTime, IsThatOfBeforeWhereTheArithmeticIs) {
  for (const std::string change :
       {"seeds=[9]", "cluster.workers=2", "cluster.micro_batches=1", "network.latency_s=1", "budget.epochs=2",
        "training.learning_rate.peak=0.1", "models.mlp.hidden=[9]", "name=other"})
    EXPECT_EQ(keys({change}), keys({})) << change;
}

TEST_F(MeasuredTime, IsMeasuredForEachPointOfASweepOverIt) {
  EXPECT_EQ(keys({"sweep={'training.micro_batch_size'=[4,8,16]}"}).size(), 3u);
  EXPECT_EQ(keys({"sweep={'network.latency_s'=[0.1,0.2]}"}).size(), 1u);
}

}  // namespace
}  // namespace syncopate
