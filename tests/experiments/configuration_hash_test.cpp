// The contents of data sets, and the keys of [evaluation], determine which finished runs belong to an experiment.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "experiments/execution/runner.hpp"
#include "experiments/sections/definition.hpp"
#include "experiments/sections/experiment.hpp"
#include "results/run_directory.hpp"
#include "tests/experiments/experiment_file.hpp"
#include "tests/experiments/hashed_leaves.hpp"
#include "tests/workers/idx_files.hpp"
#include "workers/base/files.hpp"
#include "workers/config/toml.hpp"

namespace syncopate {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr const char* on_images = R"(name = "images"
[cluster]
workers = 2
micro_batch_s = 0.01
[network]
kind = "free"
[training]
model = "linear"
micro_batch_size = 8
[training.learning_rate]
schedule = "constant"
peak = 0.1
[training.optimizer]
name = "sgd"
[budget]
steps = 4
[evaluation]
every_steps = 2
[[methods]]
algorithm = "sync-sgd"
)";

// Data of 64 training and 16 test images of 2 x 2 pixels.
class DataInHash : public IdxFiles {
 protected:
  void SetUp() override {
    IdxFiles::SetUp();
    setenv("XDG_CACHE_HOME", "/proc/nowhere", 1);  // tests must not use the user's cache
    file_ = directory_ / "images.toml";
    std::ofstream(file_) << on_images;
    write_images(pixels(64), "train");
    write_images(pixels(16), "t10k");
  }

  static FileBytes pixels(std::size_t images) {
    FileBytes bytes(4 * images);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::uint8_t>(37 * i);
    return bytes;
  }
  static FileBytes inverted(FileBytes bytes) {
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(255 - byte);
    return bytes;
  }
  void write_images(const FileBytes& bytes, const std::string& split) const {
    const auto images = static_cast<std::uint32_t>(bytes.size() / 4);
    FileBytes labels(images);
    for (std::uint32_t i = 0; i < images; ++i) labels[i] = static_cast<std::uint8_t>(i % 10);
    write(split + "-images-idx3-ubyte", idx_file({images, 2, 2}, bytes));
    write(split + "-labels-idx1-ubyte", idx_file({images}, labels));
  }

  Experiment load(std::vector<std::string> overrides = {}, const fs::path& data = {}) const {
    overrides.push_back(
        fmt::format("datasets.fashion-mnist.directory=\"{}\"", (data.empty() ? directory_ : data).string()));
    return load_experiment(file_.string(), overrides);
  }
  std::string hash(const std::vector<std::string>& overrides = {}) const { return load(overrides).runs.at(0).hash; }

  // Executes the missing runs and returns the output.
  std::string start(const std::vector<std::string>& overrides = {}) const {
    RunOptions options;
    options.results_directory = directory_ / "results";
    options.threads = 1;
    options.cluster = ClusterChoice::simulated;
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    EXPECT_EQ(run_experiment(load(overrides), options), 0);
    testing::internal::GetCapturedStdout();
    return testing::internal::GetCapturedStderr();
  }

  fs::path file_;
};

TEST_F(DataInHash, InvertedImagesOfTheSameNameAndSizeAreAnotherRun) {
  EXPECT_THAT(start(), HasSubstr("run 1 of 1"));
  EXPECT_THAT(start(), HasSubstr("1 of 1 runs already exist"));
  const std::string before = hash();
  write_images(inverted(pixels(64)), "train");
  EXPECT_NE(hash(), before);
  const std::string said = start();
  EXPECT_THAT(said, HasSubstr("run 1 of 1"));
  EXPECT_THAT(said, testing::Not(HasSubstr("already")));
}

TEST_F(DataInHash, EachOfTheFourFilesCounts) {
  const std::string before = hash();
  for (const char* name :
       {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}) {
    const fs::path path = directory_ / name;
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(-1, std::ios::end);
    const int last = file.get();
    const auto put = [&](int byte) {
      file.seekp(-1, std::ios::end);
      file.put(static_cast<char>(byte)).flush();
    };
    put(last ^ 1);
    EXPECT_NE(hash(), before) << name;
    put(last);
    EXPECT_EQ(hash(), before) << name;
  }
}

TEST_F(DataInHash, TouchedFilesAndOtherPlacesAreTheSameRun) {
  const std::string before = hash();
  for (const auto& entry : fs::directory_iterator(directory_))
    fs::last_write_time(entry.path(), fs::file_time_type::clock::now() - std::chrono::hours(1));
  EXPECT_EQ(hash(), before);
  const fs::path elsewhere = directory_ / "elsewhere";
  fs::create_directory(elsewhere);
  for (const auto& entry : fs::directory_iterator(directory_))
    if (entry.is_regular_file()) fs::copy(entry.path(), elsewhere);
  EXPECT_EQ(load({}, elsewhere).runs.at(0).hash, before);
}

TEST_F(DataInHash, ARecordedConfigurationRefusesOtherContents) {
  const std::string recorded = load().runs.at(0).resolved_toml;
  std::ofstream(file_) << recorded;
  EXPECT_NO_THROW(load());
  write_images(inverted(pixels(16)), "t10k");
  EXPECT_THAT(message_of<ConfigurationFault>([this] { load(); }),
              testing::AllOf(HasSubstr("datasets.fashion-mnist.directory_hash = "), HasSubstr("must be the digest of "),
                             HasSubstr(directory_.string())));
  EXPECT_NO_THROW(load({"training.model=none", "training.parameters=1", "training.dataset=gaussian-mixture"}))
      << "where no file is needed";
}

TEST_F(DataInHash, DataThatChangeBetweenReadingAndLoadingAreAFault) {
  const syncopate::Run run = load().runs.at(0);
  write_images(inverted(pixels(64)), "train");
  EXPECT_THAT(message_of<DataFault>([&] { run.training.make_objective(); }), HasSubstr("have changed since"));
  EXPECT_NO_THROW(load().runs.at(0).training.make_objective());
}

TEST_F(DataInHash, AFileOrALinkThatLeadsNowhereIsNoDirectoryOfData) {
  const auto fault = [&](const fs::path& data) { return message_of<ConfigurationFault>([&] { load({}, data); }); };
  EXPECT_THAT(fault(file_), HasSubstr(file_.string() + ": is a file; must be a directory"));
  fs::create_symlink("/nowhere/at/all", directory_ / "dangling");
  EXPECT_THAT(fault(directory_ / "dangling"), HasSubstr("is a link to /nowhere/at/all, which is not there; must be"));
  fs::create_symlink("loop", directory_ / "loop");
  EXPECT_THAT(fault(directory_ / "loop"), HasSubstr("links that lead back to themselves; must be a directory"));
}

struct WorkingDirectory {
  explicit WorkingDirectory(const fs::path& directory) { fs::current_path(directory); }
  ~WorkingDirectory() { fs::current_path(before); }
  const fs::path before = fs::current_path();
};

// Two data sets have the same name: one is in the experiment file's folder, and one in the working directory.
class RelativeDirectory : public DataInHash {
 protected:
  void SetUp() override {
    DataInHash::SetUp();
    for (const char* place : {"beside/data", "working/data"}) {
      fs::create_directories(directory_ / place);
      for (const auto& entry : fs::directory_iterator(directory_))
        if (entry.path().filename().string().ends_with("ubyte")) fs::copy(entry.path(), directory_ / place);
    }
    write_images(inverted(pixels(64)), "train");
    fs::copy(directory_ / "train-images-idx3-ubyte", directory_ / "working/data", fs::copy_options::overwrite_existing);
    file_ = directory_ / "beside/images.toml";
    std::ofstream(file_) << on_images << "[datasets.fashion-mnist]\ndirectory = \"data\"\n";
    working_.emplace(directory_ / "working");
  }
  void TearDown() override {
    working_.reset();
    DataInHash::TearDown();
  }
  std::string hash_in(const fs::path& data) const { return load({}, data).runs.at(0).hash; }

  std::optional<WorkingDirectory> working_;
};

TEST_F(RelativeDirectory, IsSoughtBesideTheExperimentFileFirstWhereverItIsNamed) {
  ASSERT_NE(hash_in(directory_ / "beside/data"), hash_in(directory_ / "working/data"));
  const Experiment as_written = load_experiment(file_.string(), {});
  EXPECT_EQ(as_written.runs.at(0).hash, hash_in(directory_ / "beside/data"));
  EXPECT_THAT(as_written.resolved_toml,
              HasSubstr(fmt::format("directory = \"{}\"", (directory_ / "beside/data").string())));
  EXPECT_EQ(hash_in("data"), hash_in(directory_ / "beside/data")) << "on the command line";
  EXPECT_NO_THROW(as_written.runs.at(0).training.make_objective());
  // The file is loaded from its own folder, so its path has no folder.
  fs::current_path(directory_ / "beside");
  EXPECT_EQ(load_experiment("images.toml", {}).runs.at(0).hash, hash_in(directory_ / "beside/data"));
}

TEST_F(RelativeDirectory, IsSoughtInTheWorkingDirectoryNext) {
  fs::remove_all(directory_ / "beside/data");
  EXPECT_EQ(load_experiment(file_.string(), {}).runs.at(0).hash, hash_in(directory_ / "working/data"));
  // Now the file lacks the table [datasets.fashion-mnist].
  std::ofstream(file_) << on_images;
  EXPECT_EQ(hash_in("data"), hash_in(directory_ / "working/data"));
  EXPECT_EQ(hash_in("./data/../data"), hash_in(directory_ / "working/data"));
}

TEST_F(RelativeDirectory, IsThatOfTheRecordedConfigurationFromEverywhere) {
  const auto run = load_experiment(file_.string(), {}).runs.at(0);
  fs::create_directory(directory_ / "records");
  std::ofstream(directory_ / "records/config.toml") << run.resolved_toml;
  EXPECT_EQ(load_experiment((directory_ / "records/config.toml").string(), {}).runs.at(0).hash, run.hash);
}

TEST_F(RelativeDirectory, ThatIsNowhereIsSaidToBeInNeitherPlace) {
  EXPECT_THAT(message_of<ConfigurationFault>([&] { load({}, "nowhere"); }),
              testing::AllOf(HasSubstr((directory_ / "beside/nowhere").string() + ": no such directory"),
                             HasSubstr("nor " + (directory_ / "working/nowhere").string())));
  // If both folders are the same, the fault names the folder once.
  fs::current_path(directory_ / "beside");
  EXPECT_THAT(message_of<ConfigurationFault>([&] { load({}, "nowhere"); }), testing::Not(HasSubstr("nor ")));
  // A place with a file instead of a data set is not skipped: the fault names the file.
  fs::current_path(directory_ / "working");
  EXPECT_THAT(message_of<ConfigurationFault>([&] { load({}, "images.toml"); }),
              HasSubstr(file_.string() + ": is a file; must be a directory"));
}

TEST_F(DataInHash, ResultsOfAnotherEvaluationAreNotTakenForThisOne) {
  start();
  std::vector<std::string> hashes = {hash()};
  for (const char* key : {"evaluation.every_steps=1", "evaluation.train_samples=7", "evaluation.target_accuracy=0.5",
                          "evaluation.target_loss=0.5"}) {
    EXPECT_EQ(std::ranges::count(hashes, hash({key})), 0) << key;
    hashes.push_back(hash({key}));
    EXPECT_THAT(start({key}), testing::Not(HasSubstr("already"))) << key;
    EXPECT_THAT(start({key}), HasSubstr("1 of 1 runs already exist")) << key;
  }
  EXPECT_THAT(start(), HasSubstr("already")) << "and the first are still there";
}

TEST_F(DataInHash, EvaluationsCountedInEpochsAreNotTakenForOthers) {
  std::string text = on_images;
  const auto at = text.find("every_steps = 2");
  text.replace(at, 15, "every_epochs = 0.25");  // a quarter of the epoch's 64 images is one step of 16
  std::ofstream(file_) << text;
  const std::string quarter = hash();
  EXPECT_NE(hash({"evaluation.every_epochs=0.5"}), quarter);
}

// Each leaf of a resolved configuration is part of the run's hash, and each key in the file is such a leaf. Otherwise a
// run could reuse the results of a run with other settings. KeyWalk checks the same for each run of its cases.

using testing::UnorderedElementsAre;

// Calls visit(run, file) for the first run of each method.
template <typename Visit>
void for_each_method(const std::string& file, Visit visit, const Overrides& overrides = {}) {
  SCOPED_TRACE(file);
  std::set<std::size_t> methods;
  const Experiment experiment = load_experiment(file, overrides);
  for (const auto& run : experiment.runs)
    if (methods.insert(run.method_index).second) visit(run, file);
  EXPECT_EQ(methods.size(), experiment.methods.size());
}

template <typename Visit>
void for_each_example(Visit visit) {
  for (const auto& entry : fs::recursive_directory_iterator(SYNCOPATE_SOURCE_DIR "/experiments"))
    if (entry.path().extension() == ".toml") for_each_method(entry.path(), visit);
}

TEST(ConfigurationHash, EveryLeafOfEveryExampleCountsButTheseFew) {
  std::set<std::string_view> not_hashed;
  for_each_example([&](const auto& run, const auto&) { not_hashed.merge(expect_every_leaf_hashed(run)); });
  EXPECT_THAT(not_hashed, UnorderedElementsAre("it is the title of plots", "its content counts",
                                               "what is recorded beside a run decides nothing of it",
                                               "the number that was found counts"));
}

TEST(ConfigurationHash, EveryKeyThatIsWrittenInAnExampleIsPartOfIt) {
  for_each_example(
      [](const auto& run, const auto& file) { expect_every_written_leaf_resolved(written_document(file), run); });
}

// Runs from before a key existed keep their hash.
TEST(ConfigurationHash, LeavesOutAKeyThatCameLaterWhereItSaysWhatHeldBefore) {
  const auto hash = [](const std::string& method) {
    return configuration_hash(parse_toml("[[methods]]\nalgorithm = " + method, "test.toml"));
  };
  EXPECT_EQ(hash("'co2'\nrounds = 'overlapped'"), hash("'co2'"));
  EXPECT_NE(hash("'co2'\nrounds = 'blocking'"), hash("'co2'"));
  EXPECT_EQ(hash("'mindflayer'\nrule = 'clipping-rennala'\ntrials = 3"), hash("'mindflayer'\ntrials = 3"));
  EXPECT_NE(hash("'mindflayer'\nrule = 'mindflayer'"), hash("'mindflayer'"));
  EXPECT_EQ(hash("'local-sgd'\nweights = 'equal'"), hash("'local-sgd'"));
  EXPECT_NE(hash("'local-sgd'\nweights = 'samples'"), hash("'local-sgd'"));
  for (const char* method : {"'dropcompute-local-sgd'", "'stsyn'"})  // these already had a key of this name
    EXPECT_NE(hash(std::string(method) + "\nweights = 'equal'"), hash(method)) << method;
}

class TheReadmesExperiment : public ExperimentFile {};

// Only one code block of experiments/README.md has this name.
TEST_F(TheReadmesExperiment, HasNoKeyThatIsNotHashed) {
  std::ostringstream readme;
  readme << std::ifstream(SYNCOPATE_SOURCE_DIR "/experiments/README.md").rdbuf();
  const std::string text = readme.str();
  const auto begin = text.find("name = \"my-experiment\"");
  ASSERT_NE(begin, text.npos);
  write(text.substr(begin, text.find("```", begin) - begin));
  std::set<std::string_view> not_hashed;
  for_each_method(file, [&](const auto& run, const auto&) {
    not_hashed.merge(expect_every_leaf_hashed(run));
    expect_every_written_leaf_resolved(written_document(file), run);
  });
  EXPECT_EQ(not_hashed.size(), 4u);
}

}  // namespace
}  // namespace syncopate
