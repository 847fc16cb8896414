// Trainings that start where others have ended: from a file of parameters, or after a common phase of all methods.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "experiments/execution/runner.hpp"
#include "results/found_runs.hpp"
#include "results/run_directory.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/workers/script_files.hpp"
#include "workers/base/arrays.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ContinuedTraining : public ExperimentFile {
 protected:
  void SetUp() override {
    ExperimentFile::SetUp();
    folder_ = file;
    folder_ += "-files";
    fs::create_directories(folder_);
    options_.results_directory = (folder_ / "results").string();
    options_.threads = 1;
    options_.quiet = true;
    options_.cluster = ClusterChoice::simulated;
  }
  void TearDown() override {
    fs::remove_all(folder_);
    ExperimentFile::TearDown();
  }

  // Loads an experiment that trains with plain SGD at a constant rate; `more` has further keys.
  Experiment continued(Overrides more) const {
    Overrides overrides = {"seeds=[3]", "training.learning_rate={schedule='constant',peak=0.1}",
                           "recording.parameters=true"};
    overrides.insert(overrides.end(), more.begin(), more.end());
    return load(overrides);
  }
  Recording recording_of(const Overrides& more) const { return outcome_of(continued(more).runs.front()).recording; }
  std::string start(const Recording& from, const std::string& folder = "start") const {
    fs::create_directories(folder_ / folder);
    write_file(folder_ / folder / "parameters.npy", npy(from.parameters));
    if (!from.buffers.empty()) write_file(folder_ / folder / "buffers.npy", npy(from.buffers));
    return "training.start='" + (folder_ / folder / "parameters.npy").string() + "'";
  }
  static void write_file(const fs::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  static std::string read(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  std::string faults(const Overrides& more) const {
    try {
      continued(more);
    } catch (const ConfigurationFault& fault) {
      return fault.what();
    }
    return "";
  }

  int run(const Experiment& experiment) {
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int status = run_experiment(experiment, options_);
    out_ = testing::internal::GetCapturedStdout();
    err_ = testing::internal::GetCapturedStderr();
    return status;
  }
  fs::path directory(const syncopate::Run& run) const { return run_directory(options_.results_directory, run, false); }
  std::vector<fs::path> phases() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::recursive_directory_iterator(options_.results_directory))
      if (entry.path().filename() == "summary.json" &&
          entry.path().parent_path().parent_path().filename() == "common-phase")
        found.push_back(entry.path());
    return found;
  }

  fs::path folder_;
  RunOptions options_;
  std::string out_;
  std::string err_;
};

TEST_F(ContinuedTraining, StepsFromAFinishedRunAreThoseOfALongerOne) {
  const Recording whole = recording_of({"budget={steps=12}"});
  const std::string from_7 = start(recording_of({"budget={steps=7}"}));
  EXPECT_EQ(recording_of({from_7, "training.start_steps=7", "budget={steps=5}"}).parameters, whole.parameters);
  EXPECT_NE(recording_of({from_7, "budget={steps=5}"}).parameters, whole.parameters) << "on the first samples again";
  EXPECT_NE(recording_of({"training.start_steps=7", "budget={steps=5}"}).parameters, whole.parameters);
}

TEST_F(ContinuedTraining, AQuadraticsNoiseGoesOnToo) {
  const std::string model = "training.model='quadratic'";
  const Recording whole = recording_of({model, "budget={steps=12}"});
  const std::string from_7 = start(recording_of({model, "budget={steps=7}"}));
  EXPECT_EQ(recording_of({model, from_7, "training.start_steps=7", "budget={steps=5}"}).parameters, whole.parameters);
  EXPECT_NE(recording_of({model, from_7, "budget={steps=5}"}).parameters, whole.parameters);
}

// The first phase takes 640 samples in 10 steps, an epoch. The next phase takes 320 in 10 steps of half the batch.
TEST_F(ContinuedTraining, EpochsFollowTheSamplesOfAPhaseWithAnotherBatch) {
  const Recording recording = recording_of({"budget={steps=20}",
                                            "methods=[{algorithm='local-sgd',period={rule='swap',switch_step=10},"
                                            "local_phase={micro_batches=1}}]"});
  ASSERT_FALSE(recording.metrics.empty());
  EXPECT_EQ(recording.metrics.back().step, Step{20});
  EXPECT_EQ(recording.metrics.back().samples, 960);
  EXPECT_EQ(recording.metrics.back().epoch, 1.5);
}

// A worker's passes over all samples begin at the start of an epoch, even if the phase before ends within an epoch.
TEST_F(ContinuedTraining, PassesInAnOrderOfEachWorkersOwnAreWhole) {
  const auto passes = [&](const std::string& start_steps) {
    return recording_of({"budget={steps=6}", "training.start_steps=" + start_steps,
                         "methods=[{algorithm='local-sgd',period={rule='swap',switch_step=0},"
                         "local_phase={sampling='own-order'}}]"})
        .parameters;
  };
  EXPECT_EQ(passes("5"), passes("0"));
}

TEST_F(ContinuedTraining, AnOrderOfEachWorkersOwnOfDataThatAreDividedIsAFault) {
  EXPECT_THAT(faults({"training.partition={kind='size',alpha=100}",
                      "methods=[{algorithm='local-sgd',period={rule='swap',switch_step=0},"
                      "local_phase={sampling='own-order'}}]"}),
              HasSubstr("must be \"shards\" if training.partition"));
}

// Moments start at zero, so with momentum a continued training differs from a whole one.
TEST_F(ContinuedTraining, MomentsBeginAtZero) {
  const std::string momentum = "training.optimizer.momentum=0.9";
  const Recording whole = recording_of({momentum, "budget={steps=12}"});
  const std::string from_7 = start(recording_of({momentum, "budget={steps=7}"}));
  EXPECT_NE(recording_of({momentum, from_7, "training.start_steps=7", "budget={steps=5}"}).parameters,
            whole.parameters);
}

TEST_F(ContinuedTraining, NormalisationStatisticsGoOnWhereTheyWere) {
  const std::string module = (folder_ / "model.pt").string();
  // The generated data have 32 features and 10 classes by default. The buffer is a running mean of the logits.
  save_script(
      module,
      {{.name = "weight", .shape = {10, 32}}, {.name = "mean", .shape = {10}, .kind = ScriptTensor::Kind::buffer}},
      "y = torch.linear(x, self.weight)\nif self.training:\n    self.mean = self.mean * 0.9 + "
      "torch.mean(y.detach(), [0]) * 0.1\nreturn y - self.mean");
  const Overrides model = {"training.model='torchscript'", "models.torchscript.file='" + module + "'"};
  const auto with = [&](Overrides more) {
    more.insert(more.end(), model.begin(), model.end());
    return more;
  };
  const Recording whole = recording_of(with({"budget={steps=12}"}));
  ASSERT_EQ(whole.buffers.size(), 1u);
  const Recording part = recording_of(with({"budget={steps=7}"}));
  ASSERT_NE(part.buffers, whole.buffers);
  const Recording rest = recording_of(with({start(part), "training.start_steps=7", "budget={steps=5}"}));
  EXPECT_EQ(rest.parameters, whole.parameters);
  EXPECT_EQ(rest.buffers, whole.buffers);
  // Without buffers.npy beside the parameters, the statistics begin as in a new model.
  const Recording alone{.parameters = part.parameters};
  const Recording anew = recording_of(with({start(alone, "alone"), "training.start_steps=7", "budget={steps=5}"}));
  EXPECT_NE(anew.buffers, whole.buffers);
}

TEST_F(ContinuedTraining, WhatIsInTheFilesIsPartOfTheHashAndNotTheirPlace) {
  const Recording some = recording_of({"budget={steps=2}"});
  const Recording others = recording_of({"budget={steps=3}"});
  const auto hash = [&](const std::string& start) { return continued({start}).runs.front().hash; };
  EXPECT_EQ(hash(start(some, "a")), hash(start(some, "b")));
  EXPECT_NE(hash(start(some, "a")), hash(start(others, "b")));
  start(others, "a");
  EXPECT_THAT(faults({start(others, "a"), "training.start_hash='0'"}), HasSubstr("training.start_hash = \"0\""));
}

TEST_F(ContinuedTraining, AFileThatIsNotThisModelsIsAFault) {
  EXPECT_THAT(faults({"training.start='absent.npy'"}),
              testing::AllOf(HasSubstr("training.start = \"absent.npy\""), HasSubstr("there is no file")));
  EXPECT_THAT(faults({start({.parameters = {{1, 2, 3}}})}), HasSubstr("contains 3 parameters, but the model has 330"));
  EXPECT_THAT(faults({start({.parameters = {{1, 2}, {3, 4}}})}), HasSubstr("has 2 dimensions"));
  Recording right = recording_of({"budget={steps=1}"});
  right.buffers = {{1}};
  EXPECT_THAT(faults({start(right, "buffers")}),
              HasSubstr("buffers.npy in the same folder contains 1 numbers; the model has 0"));
  Recording broken = recording_of({"budget={steps=1}"});
  broken.parameters.front().at(3) = NAN;
  EXPECT_THAT(faults({start(broken, "broken")}), HasSubstr("parameters.npy: element 3 is nan; must be finite"));
  write_file(folder_ / "text", "no array");
  EXPECT_THAT(faults({"training.start='" + (folder_ / "text").string() + "'"}), HasSubstr("training.start"));
  EXPECT_THAT(
      faults({start(right), "training={model='none',parameters=330,start='" + (folder_ / "text").string() + "'}"}),
      HasSubstr("must be left out: there is no model"));
}

TEST_F(ContinuedTraining, ACommonPhaseIsRunOnceForAllMethodsOfASeed) {
  const Overrides keys = {"seeds=[3,5]", "training.common.steps=7", "budget={steps=5}"};
  const Experiment experiment = continued(keys);
  ASSERT_EQ(experiment.runs.size(), 4u);
  ASSERT_EQ(run(experiment), 0);
  ASSERT_EQ(phases().size(), 2u) << "one per seed";

  // The phase uses the first method, so the phase and this method's run together equal one longer run.
  const Experiment whole = continued({"seeds=[3,5]", "budget={steps=12}"});
  for (const std::size_t seed : {0u, 1u}) {
    const auto expected = outcome_of(whole.runs[seed]).recording.parameters;
    EXPECT_EQ(read(directory(experiment.runs[seed]) / "parameters.npy"), npy(expected));
  }

  const auto made = fs::last_write_time(phases().front());
  fs::remove_all(directory(experiment.runs[0]));
  ASSERT_EQ(run(experiment), 0);
  EXPECT_TRUE(fs::exists(directory(experiment.runs[0]) / "parameters.npy"));
  EXPECT_EQ(phases().size(), 2u);
  EXPECT_EQ(fs::last_write_time(phases().front()), made) << "it was there already";
}

// The phase is 10 steps, an epoch. With the method's own batch an epoch has 20 steps.
TEST_F(ContinuedTraining, BehindACommonPhaseSamplesGoOnInABatchOfAnotherSize) {
  const Experiment experiment = continued({"training.common.epochs=1", "budget={steps=5}",
                                           "methods=[{algorithm='sync-sgd',training={micro_batch_size=4}}]"});
  ASSERT_EQ(run(experiment), 0);
  const std::string end = start(recording_of({"budget={steps=10}"}));
  const Recording expected =
      recording_of({end, "training.start_steps=20", "training.micro_batch_size=4", "budget={steps=5}"});
  EXPECT_EQ(read(directory(experiment.runs[0]) / "parameters.npy"), npy(expected.parameters));
}

TEST_F(ContinuedTraining, ACommonPhaseGoesByItsOwnKeysAndByNothingThatFollowsIt) {
  const auto phase = [&](Overrides more) {
    more.insert(more.begin(), "training.common={epochs=0.5,learning_rate={schedule='constant',peak=0.01},clip_norm=1}");
    const Experiment experiment = continued(more);
    for (const auto& run : experiment.runs) EXPECT_EQ(run.common_phase->hash, experiment.runs[0].common_phase->hash);
    return experiment.runs.front().common_phase;
  };
  const auto usual = phase({});
  EXPECT_EQ(usual->budget.steps, Step{5});
  EXPECT_EQ(usual->training.options.clip_norm, 1);
  EXPECT_EQ(usual->training.learning_rate->at(Step{3}), 0.01);
  EXPECT_EQ(phase({"budget={steps=9}", "methods.drop.threshold_s=0.03"})->hash, usual->hash);
  EXPECT_NE(phase({"training.micro_batch_size=4"})->hash, usual->hash);
  EXPECT_NE(continued({"training.common.steps=5"}).runs[0].hash, continued({"training.common.steps=6"}).runs[0].hash);
}

TEST_F(ContinuedTraining, TheResolvedFileHasTheSamePhase) {
  const Experiment first = continued({"training.common={steps=4,clip_norm=1}"});
  write(first.resolved_toml);
  const Experiment again = load();
  EXPECT_EQ(again.runs[0].hash, first.runs[0].hash);
  EXPECT_EQ(again.runs[0].common_phase->hash, first.runs[0].common_phase->hash);
}

TEST_F(ContinuedTraining, AFailedPhaseFailsTheRunsThatStartFromIt) {
  const Experiment experiment = continued(
      {"training.common={steps=40,learning_rate={schedule='constant',peak=1e38}}", "evaluation.every_steps=1"});
  EXPECT_EQ(run(experiment), 1);
  EXPECT_THAT(read(directory(experiment.runs[1]) / "summary.json"), HasSubstr("its common phase failed: "));
}

// Tables are printed without a damaged phase. The next `run` repeats it, although all runs that start from it are
// finished.
TEST_F(ContinuedTraining, ADamagedPhaseIsRepeatedAndTablesDoWithoutIt) {
  const Experiment experiment = continued({"training.common={steps=4}", "budget={steps=2}"});
  ASSERT_EQ(run(experiment), 0);
  const std::string table = out_;
  const fs::path phase = phases().front().parent_path();
  const std::string parameters = read(phase / "parameters.npy");
  const auto ended = fs::last_write_time(directory(experiment.runs[0]));
  for (const bool shares : {false, true}) {
    std::string damaged = parameters;
    damaged.back() = static_cast<char>(damaged.back() + 1);
    write_file(phase / "parameters.npy", damaged);
    ASSERT_NE(damage_of(phase), "");
    EXPECT_EQ(find_runs(options_.results_directory).size(), 2u);
    options_.sharing = shares ? std::optional(Sharing{.call = "a call"}) : std::nullopt;
    EXPECT_EQ(run(experiment), 0) << err_;
    EXPECT_EQ(out_, table);
    EXPECT_THAT(err_, HasSubstr((phase / "parameters.npy").string() + ": has changed since it was written"));
    EXPECT_THAT(err_, HasSubstr("; the common phase is repeated\n"));
    EXPECT_EQ(damage_of(phase), "");
    EXPECT_EQ(read(phase / "parameters.npy"), parameters);
    EXPECT_EQ(fs::last_write_time(directory(experiment.runs[0])), ended) << "no run is repeated";
    EXPECT_EQ(run(experiment), 0);
    EXPECT_EQ(err_, "");
  }
}

TEST_F(ContinuedTraining, AFaultyCommonPhaseIsAFaultOfItsKeys) {
  EXPECT_THAT(faults({"training.common.clip_norm=1"}), HasSubstr("training.common; must have steps or epochs"));
  EXPECT_THAT(faults({"training.common={steps=2,epochs=1}"}),
              HasSubstr("training.common.epochs = 1; cannot be combined with steps"));
  EXPECT_THAT(faults({"training.common=7"}), HasSubstr("training.common = 7; must be a table"));
  EXPECT_THAT(faults({"training.common={steps=0}"}), HasSubstr("training.common.steps = 0"));
  EXPECT_THAT(faults({"training.common={steps=2,clip_nrm=1}"}), HasSubstr("training.common.clip_nrm"));
  EXPECT_THAT(faults({"methods.drop.training.common={clip_norm=1}"}),
              HasSubstr("methods.1.training.common; must have steps or epochs"));
  EXPECT_THAT(faults({"training.common={steps=2,takes='head'}"}),
              HasSubstr("training.common.takes = \"head\"; must be one of \"all\", \"body\""));
  EXPECT_THAT(faults({"training.common={steps=2,method='dropcompute'}"}),
              HasSubstr("training.common.method = \"dropcompute\"; must be a table"));
  EXPECT_THAT(faults({"training.common={steps=2,method={algorithm='dropcompute'}}"}),
              HasSubstr("training.common.method.threshold_s; must be a number above 0"));
  EXPECT_THAT(faults({"methods.drop.training.common={steps=2,method={algorithm='dropcomput',label='d'}}"}),
              testing::AllOf(HasSubstr("methods.1.training.common.method.algorithm = \"dropcomput\""),
                             HasSubstr("methods.1.training.common.method.label = \"d\"; must be left out")));
  EXPECT_THAT(faults({"training.common={steps=2,models={mlp={hiden=[3]}}}"}),
              HasSubstr("training.common.models.mlp.hiden"));
  EXPECT_THAT(faults({"training={model='none',parameters=10,common={steps=2}}"}),
              HasSubstr("must be left out: there is no model"));
}

TEST_F(ContinuedTraining, AMethodsOwnPhaseIsItsBeginning) {
  const Overrides own = {"budget={steps=5}", "training.common.steps=7",
                         "methods.drop.training.common.method={algorithm='dropcompute',threshold_s=0.015}"};
  const Experiment experiment = continued(own);
  ASSERT_EQ(run(experiment), 0);
  ASSERT_EQ(phases().size(), 2u);
  const Recording phase = recording_of(
      {"methods=[{algorithm='dropcompute',threshold_s=0.015}]", "budget={steps=7}", "evaluation.every_steps=100"});
  ASSERT_NE(phase.parameters, recording_of({"budget={steps=7}"}).parameters) << "the phase drops something";
  const Experiment from_there = continued({"budget={steps=5}", start(phase), "training.start_steps=7"});
  EXPECT_EQ(read(directory(experiment.runs[1]) / "parameters.npy"),
            npy(outcome_of(from_there.runs[1]).recording.parameters));
  EXPECT_NE(read(directory(experiment.runs[0]) / "parameters.npy"),
            npy(outcome_of(from_there.runs[0]).recording.parameters));

  const Experiment of_drop_alone = continued({"methods.drop.training.common={steps=7}"});
  EXPECT_EQ(of_drop_alone.runs[0].common_phase, nullptr);
  EXPECT_EQ(of_drop_alone.runs[1].common_phase->hash,
            continued({"training.common.steps=7"}).runs[0].common_phase->hash);
}

TEST_F(ContinuedTraining, WhatAPhaseHasOtherwiseIsPartOfTheHash) {
  const Overrides usual = {"training.model='mlp'", "models.mlp.hidden=[8]", "training.common.steps=4"};
  const auto runs = [&](const std::string& more) {
    Overrides keys = usual;
    keys.push_back(more);
    return continued(keys).runs;
  };
  const auto without = continued(usual).runs;
  for (const char* const other :
       {"training.common.takes='body'", "training.common.method={algorithm='dropcompute',threshold_s=0.015}",
        "training.common.datasets.gaussian-mixture.separation=2"}) {
    EXPECT_NE(runs(other)[0].hash, without[0].hash) << other;
    EXPECT_NE(runs(other)[0].fingerprint, without[0].fingerprint) << other;
    const auto own = runs("methods.drop." + std::string(other));
    EXPECT_EQ(own[0].hash, without[0].hash) << other;
    EXPECT_NE(own[1].hash, without[1].hash) << other;
    EXPECT_NE(own[1].fingerprint, without[1].fingerprint) << other;
  }
  const Experiment first = continued({usual[0], usual[1], usual[2],
                                      "methods.drop.training.common={takes='body',method={algorithm='local-sgd',"
                                      "period={rule='constant',steps=2}}}"});
  write(first.resolved_toml);
  const Experiment again = load();
  ASSERT_EQ(again.runs.size(), first.runs.size());
  for (const std::size_t i : {0u, 1u}) {
    EXPECT_EQ(again.runs[i].hash, first.runs[i].hash);
    EXPECT_EQ(again.runs[i].common_phase->hash, first.runs[i].common_phase->hash);
  }
}

// The phase distinguishes 5 classes, the method 10. The method's rate is so small that its steps change nothing.
TEST_F(ContinuedTraining, ABodyIsTakenAndTheHeadIsTheMethodsOwn) {
  const Overrides model = {"training.model='mlp'", "models.mlp.hidden=[8]", "budget={steps=1}"};
  const std::string still = "training.learning_rate.peak=1e-30";
  const std::string phase =
      "training.common={steps=6,takes='body',learning_rate={schedule='constant',peak=0.1},"
      "datasets={gaussian-mixture={classes=5}}}";
  const auto with = [&](Overrides keys) {
    keys.insert(keys.begin(), model.begin(), model.end());
    return keys;
  };
  const Experiment experiment = continued(with({still, phase}));
  ASSERT_EQ(run(experiment), 0);
  const auto ended = floats_from_npy(read(phases().front().parent_path() / "parameters.npy"));
  const auto fresh = recording_of(with({still})).parameters.front();
  const auto taken = floats_from_npy(read(directory(experiment.runs[0]) / "parameters.npy"));
  // The model has (8, 32) and (10, 8) weights, then 8 and 10 biases. In the phase its second layer has (5, 8) weights
  // and 5 biases.
  ASSERT_EQ(taken.size(), 256u + 80u + 8u + 10u);
  ASSERT_EQ(ended.size(), 256u + 40u + 8u + 5u);
  const auto part = [](const std::vector<float>& values, std::size_t from, std::size_t size) {
    return std::vector<float>(values.begin() + static_cast<std::ptrdiff_t>(from),
                              values.begin() + static_cast<std::ptrdiff_t>(from + size));
  };
  EXPECT_EQ(part(taken, 0, 256), part(ended, 0, 256));
  EXPECT_EQ(part(taken, 336, 8), part(ended, 296, 8));
  EXPECT_EQ(part(taken, 256, 80), part(fresh, 256, 80));
  EXPECT_EQ(part(taken, 344, 10), part(fresh, 344, 10));
  EXPECT_NE(part(taken, 0, 256), part(fresh, 0, 256));
}

TEST_F(ContinuedTraining, ABodyThatIsAnotherOrNoneIsAFault) {
  const Overrides model = {"training.model='mlp'", "models.mlp.hidden=[8]"};
  EXPECT_THAT(
      faults({"training.model='linear'", "training.common={steps=2,takes='body'}"}),
      HasSubstr("training.common; takes = \"body\" needs a model with a body, but that of \"sync-sgd\" has none"));
  EXPECT_THAT(faults({model[0], model[1], "training.common={steps=2,takes='body',models={mlp={hidden=[9]}}}"}),
              HasSubstr("the body of its model must equal that of"));
  EXPECT_THAT(faults({model[0], model[1], "training.common={steps=2,datasets={gaussian-mixture={classes=5}}}"}),
              HasSubstr("its model has 309 parameters"));
}

TEST_F(ContinuedTraining, APhaseThatLeavesAnEnsembleIsNoBeginning) {
  const Experiment experiment =
      continued({"training.common={steps=4,method={algorithm='branch-train-merge',merge='ensemble'}}",
                 "budget={steps=2}", "cluster.workers=4"});
  EXPECT_EQ(run(experiment), 1);
  EXPECT_THAT(read(directory(experiment.runs[0]) / "summary.json"),
              HasSubstr("it ends with an ensemble of 4 models; must end with one model"));
  EXPECT_EQ(run(experiment), 1) << "nor when it is there already";
}

}  // namespace
}  // namespace syncopate
