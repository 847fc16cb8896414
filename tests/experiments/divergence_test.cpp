// A run whose model is no longer finite has diverged: with every method, whatever it compresses or leaves out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "algorithms/registry.hpp"
#include "tests/experiments/held_by_workers.hpp"
#include "tests/experiments/loaded_text.hpp"
#include "tests/experiments/run_results.hpp"

namespace syncopate {
namespace {

// At this rate the second step along gradients that grow with the parameters leads out of single precision.
const std::string wild = R"(name = "wild"
budget.steps = 40
evaluation = { every_steps = 4 }
network = { kind = "fixed", latency_s = 0.1 }
[cluster]
workers = 4
micro_batches = 2
micro_batch_s = 1.0
worker_factors = [1, 1.3, 1.1, 1.8]
[training]
model = "quadratic"
learning_rate = { schedule = "constant", peak = 1e30 }
optimizer = { name = "sgd", momentum = 0.9 }
[models.quadratic]
dimension = 20
condition = 1
noise = 1
)";

class Divergence : public LoadedText {
 protected:
  // Steps whose length has a bound, of clipped gradients, of Adam or of a vote, stay finite: the rows then show how far
  // they led.
  static void expect_diverged(const syncopate::Run& run) {
    const Outcome outcome = outcome_of(run);
    const RunSummary summary = summarise(run, outcome);
    if (summary.status == RunStatus::finished) {
      EXPECT_GT(summary.final_test_loss.value(), 1e30) << run.resolved_toml;
    } else {
      EXPECT_EQ(to_string(summary.status), std::string("diverged")) << run.resolved_toml;
      EXPECT_THAT(summary.reason, testing::StartsWith("the model is not finite after step")) << run.resolved_toml;
    }
  }
};

TEST_F(Divergence, OfEveryMethodIsSaid) {
  const auto load_text = [this](const std::string& text) { return load(text); };
  for (const AlgorithmRow& row : algorithms())
    expect_diverged(held::of_example(wild, row.name, row.example, load_text).runs.front());
}

TEST_F(Divergence, OfWhatIsCompressedOrAveragedBesidesIsSaid) {
  for (held::Methods methods : {held::with_state, held::with_more_compressions}) {
    std::erase_if(methods, [](const std::string& method) {
      return method.find("powersgd") != std::string::npos;
    });  // without matrices
    for (const syncopate::Run& run : load(wild + held::text_of(methods)).runs) expect_diverged(run);
  }
}

TEST_F(Divergence, OfMethodsThatLeaveOutliersOutIsSaid) {
  const std::string edit = "algorithm = \"edit\"\nouter = { name = \"diloco\", rate = 0.7, momentum = 0.8 }\n";
  const std::string by_steps = edit + "period = { rule = \"constant\", steps = 4 }\n";
  const held::Methods methods = {by_steps + "scope = \"model\"\n", by_steps + "clip_norm = 0.5\n",
                                 by_steps + "outlier_factor = 1.0\noutlier_warmup = 2\noutlier_smoothing = 0.5\n",
                                 edit + "sync_seconds = 6.0\n"};
  for (const syncopate::Run& run : load(wild + held::text_of(methods)).runs) expect_diverged(run);
}

}  // namespace
}  // namespace syncopate
