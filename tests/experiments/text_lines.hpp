// Experiments on lines of text with different lengths, which determine the times of micro-batches. The fixture has its
// own sampler, which draws the same lines.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "experiments/execution/execution.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "workers/data/datasets.hpp"
#include "workers/data/partition.hpp"
#include "workers/data/sampler.hpp"
#include "workers/data/text_dataset.hpp"

namespace syncopate {

class TextLines : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    text_ = file.parent_path() / (file.stem().string() + ".txt");
    write_lines([](int i) { return 1 + i * i % 23; });
  }
  void TearDown() override {
    std::filesystem::remove(text_);
    ExperimentFile::TearDown();
  }

  // Writes 700 lines. Line i has a unique first word, followed by words(i) equal words.
  template <typename Words>
  void write_lines(const Words& words) {
    std::ofstream text(text_);
    for (int i = 0; i < 700; ++i) {
      text << (i % 3 == 0 ? "a" : "b") << "\tline" << i;
      for (int j = 0; j < words(i); ++j) text << " word";
      text << "\n";
    }
    text.close();
    write(fmt::format(R"(
seeds = [3]
[cluster]
workers = 4
micro_batches = 3
micro_batch_s = {{ base_s = 0.01, per_token_s = 0.001 }}
[network]
kind = "free"
[training]
model = "none"
parameters = 10
dataset = "text-lines"
micro_batch_size = 4
[datasets.text-lines]
file = "{}"
labelled = true
[budget]
steps = 20
[[methods]]
algorithm = "sync-sgd"
)",
                      text_.string()));
  }

  std::shared_ptr<const Dataset> dataset() const { return text_dataset(text_lines(true), {}).load(text_); }
  // Returns a sampler for the lines, cut to `longest` tokens.
  Sampler sampler(Batching batching, std::int64_t token_budget = 0, std::int32_t longest = 1000) const {
    const auto data = dataset();
    auto lengths = training_lengths(*data);
    for (std::int32_t& length : lengths) length = std::min(length, longest);
    return Sampler({.samples = data->size().train,
                    .workers = 4,
                    .micro_batches = 3,
                    .micro_batch_size = 4,
                    .seed = 3,
                    .batching = batching,
                    .token_budget = token_budget,
                    .lengths = std::make_shared<const std::vector<std::int32_t>>(std::move(lengths))});
  }
  std::vector<std::int32_t> lengths(const Sampler& sampler, int worker, int step, int m) const {
    std::vector<std::uint32_t> samples;
    sampler.append_samples({Rank{worker}, step, m}, samples);
    std::vector<std::int32_t> lengths;
    for (const std::uint32_t sample : samples) lengths.push_back((*sampler.options().lengths)[sample]);
    return lengths;
  }
  // Returns the sum over all steps of the slowest worker's time. `of` returns a micro-batch's time.
  template <typename TimeOf>
  double slowest_s(const Sampler& sampler, const TimeOf& of) const {
    double sum_s = 0;
    for (int step = 0; step < 20; ++step) {
      double slowest = 0;
      for (int worker = 0; worker < 4; ++worker) {
        double step_s = 0;
        for (int m = 0; m < 3; ++m) step_s += of(lengths(sampler, worker, step, m));
        slowest = std::max(slowest, step_s);
      }
      sum_s += slowest;
    }
    return sum_s;
  }

  static Outcome outcome_of(const syncopate::Run& run) {
    Progress progress(Progress::Style::silent, 1, 1);
    progress.begin_run(1, run);
    Outcome outcome = execute(run, {.threads = 1}, progress, [](const Outcome&) {});
    EXPECT_EQ(outcome.failure, "");
    return outcome;
  }
  double seconds(const Overrides& overrides) const {
    return to_seconds(outcome_of(load(overrides).runs.at(0)).totals->end);
  }

  std::filesystem::path text_;
};

inline double tokens_of(const std::vector<std::int32_t>& lengths) {
  double sum = 0;
  for (const std::int32_t length : lengths) sum += length;
  return sum;
}

// Keys of a model that is trained on these lines and reads only the first 8 tokens of each.
inline const std::string cuts =
    "training={model='text-transformer',dataset='text-lines',micro_batch_size=4,optimizer={name='sgd'},"
    "learning_rate={schedule='constant',peak=0.1}}";
inline const std::string cut_to_8 =
    "models.text-transformer={width=4,depth=1,heads=2,mlp_width=3,positions=8,cut=true}";

}  // namespace syncopate
