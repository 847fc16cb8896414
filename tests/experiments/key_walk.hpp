// A walk over the keys of experiment files: changing a single key must change a run's results and its hash.
//
// The walk misses no key. It records each key that is requested while its experiments are loaded, and each word of a
// choice. Each needs a case or an entry in the list of keys without an effect. Tables record the results of all cases,
// so they show whether the program computes something else than an earlier version.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "experiments/sections/experiment.hpp"
#include "tests/experiments/hashed_leaves.hpp"
#include "tests/experiments/results_by_version.hpp"
#include "tests/experiments/results_digest.hpp"
#include "tests/experiments/run_results.hpp"
#include "tests/workers/idx_files.hpp"
#include "tests/workers/npy_files.hpp"
#include "workers/config/patch.hpp"
#include "workers/config/settings.hpp"

namespace syncopate {

// An experiment and its overrides, written as on the command line ("key=value"). Each of `changes` is applied alone. A
// $ in the texts stands for the folder of the walk's files.
struct KeyCase {
  std::vector<std::string> given;
  std::vector<std::string> changes;
};

// A key that does not change a run's results, and the reason.
struct IdleKey {
  std::string_view key;  // as returned by name_of
  enum class Hash { same, differs } hash;
  std::string_view reason;
};

class KeyWalk : public testing::Test {
 protected:
  void SetUp() override {
    const auto* const test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              fmt::format("syncopate-keys-{}-{}-{}", test->test_suite_name(), test->name(), getpid());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  void write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
  }

  // Writes MNIST's four files into a folder: 240 training and 40 test images of 6 x 6 pixels in 10 classes.
  void write_images(const std::string& name, std::size_t stride) const {
    std::filesystem::create_directories(folder_ / name);
    const auto write_file = [&](const char* file, const std::vector<std::uint32_t>& dimensions, std::size_t step,
                                std::size_t below) {
      FileBytes values(std::accumulate(dimensions.begin(), dimensions.end(), std::size_t{1}, std::multiplies<>()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * i * step % below);
      const FileBytes bytes = idx_file(dimensions, values);
      write(name + "/" + file, {bytes.begin(), bytes.end()});
    };
    write_file("train-images-idx3-ubyte", {240, 6, 6}, stride, 251);
    write_file("train-labels-idx1-ubyte", {240}, 3, 10);
    write_file("t10k-images-idx3-ubyte", {40, 6, 6}, stride, 241);
    write_file("t10k-labels-idx1-ubyte", {40}, 7, 10);
  }

  // Writes CIFAR's files (48 training and 20 test images) and NumPy arrays (240 and 40 vectors of 5 numbers in 10
  // classes).
  void write_own(const std::string& name, std::size_t stride) const {
    std::filesystem::create_directories(folder_ / name);
    const auto bytes_of = [&](std::size_t size) {
      FileBytes bytes(size);
      for (std::size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::uint8_t>(i * i * stride % 251);
      return bytes;
    };
    const auto labelled = [&](std::size_t records, std::size_t labels) {
      FileBytes bytes = bytes_of(records * (labels + 3072));
      for (std::size_t i = 0; i < records; ++i)
        for (std::size_t label = 0; label < labels; ++label)
          bytes[i * (labels + 3072) + label] = static_cast<std::uint8_t>(i * (label + 1) % 10);
      return bytes;
    };
    FileBytes classes = bytes_of(240);
    for (std::uint8_t& label : classes) label %= 10;
    const auto put = [&](const std::string& file, const FileBytes& bytes) {
      write(name + "/" + file, {bytes.begin(), bytes.end()});
    };
    for (const char* batch : {"1", "2", "3", "4", "5"})
      put(std::string("data_batch_") + batch + ".bin", labelled(10, 1));
    put("test_batch.bin", labelled(20, 1));
    put("train.bin", labelled(48, 2));
    put("test.bin", labelled(20, 2));
    put("x_train.npy", npy_file("|u1", "(240, 5)", bytes_of(1200)));
    put("y_train.npy", npy_file("|u1", "(240,)", classes));
    classes.resize(40);
    put("x_test.npy", npy_file("|u1", "(40, 5)", bytes_of(200)));
    put("y_test.npy", npy_file("|u1", "(40,)", classes));
  }

  // Writes vectors of 4 features with 3 target numbers each.
  void write_numbers(const std::string& name) const {
    std::filesystem::create_directories(folder_ / name);
    const auto put = [&](const std::string& file, std::size_t rows, std::size_t columns) {
      std::vector<float> values(rows * columns);
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * i % 17) / 8 - 1;
      const FileBytes bytes = npy_file("<f4", fmt::format("({}, {})", rows, columns), bytes_of(values));
      write(name + "/" + file, {bytes.begin(), bytes.end()});
    };
    put("x_train.npy", 240, 4);
    put("y_train.npy", 240, 3);
    put("x_test.npy", 40, 4);
    put("y_test.npy", 40, 3);
  }
  // Writes sequences of up to 6 tokens, padded with 0. Every second token has a label.
  void write_token_labels(const std::string& name) const {
    std::filesystem::create_directories(folder_ / name);
    const auto put = [&](const std::string& split, std::int64_t rows) {
      std::vector<std::int64_t> tokens, labels;
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < 6; ++j) {
          const bool is_token = j <= i % 6;
          tokens.push_back(is_token ? 1 + (i + 3 * j) % 17 : 0);
          labels.push_back(is_token && j % 2 == 0 ? (i * i + j) % 5 : -100);
        }
      for (const auto& [letter, values] : {std::pair{"x", &tokens}, {"y", &labels}}) {
        const FileBytes bytes = npy_file("<i8", fmt::format("({}, 6)", rows), bytes_of(*values));
        write(fmt::format("{}/{}_{}.npy", name, letter, split), {bytes.begin(), bytes.end()});
      }
    };
    put("train", 240);
    put("test", 40);
  }
  // Writes 300 lines with labels, and NumPy arrays of tokens: 240 training and 40 test sequences of `shortest` to 6
  // tokens, padded with 0.
  void write_texts(const std::string& name, int stride, std::int32_t shortest = 1) const {
    std::string text;
    for (int i = 0; i < 300; ++i) {
      text += i % 3 == 0 ? "a\t" : "b\t";
      for (int j = 0; j <= i % 5; ++j) text += fmt::format("w{} ", (i + j) * stride % (j % 2 == 0 ? 10 : 40));
      text += "\n";
    }
    write(name + ".txt", text);
    std::filesystem::create_directories(folder_ / name);
    const auto put = [&](const std::string& split, std::int32_t rows) {
      std::vector<std::int32_t> tokens;
      FileBytes labels;
      for (std::int32_t i = 0; i < rows; ++i) {
        for (std::int32_t j = 0; j < 6; ++j)
          tokens.push_back(j < shortest + i % (7 - shortest) ? 1 + (i + j) * stride % 17 : 0);
        labels.push_back(static_cast<std::uint8_t>(i % 3));
      }
      const FileBytes x = npy_file("<i4", fmt::format("({}, 6)", rows), bytes_of(tokens)),
                      y = npy_file("|u1", fmt::format("({},)", rows), labels);
      write(name + "/x_" + split + ".npy", {x.begin(), x.end()});
      write(name + "/y_" + split + ".npy", {y.begin(), y.end()});
    };
    put("train", 240);
    put("test", 40);
  }

  // Writes files of tokens below 30, of 2 bytes or more each: 1,600 for training, 300 and 301 for tests.
  void write_streams(const std::string& name, int stride, std::size_t bytes_of_token = 2) const {
    std::filesystem::create_directories(folder_ / name);
    for (const auto& [file, count] : {std::pair{"train.bin", 1600}, {"test.bin", 300}, {"val.bin", 301}}) {
      std::string bytes;
      for (int i = 0; i < count; ++i)
        bytes += static_cast<char>(i * i * stride % (count - 1) % 30) + std::string(bytes_of_token - 1, '\0');
      write(name + "/" + file, bytes);
    }
  }

  // Writes WordNet's files, with 300 definitions in 45 categories.
  void write_glosses(const std::string& name, int stride) const {
    std::filesystem::create_directories(folder_ / name);
    for (const char* file : {"data.noun", "data.verb", "data.adj", "data.adv"}) {
      std::string text = "  1 licence\n";
      for (int i = 0; i < 75; ++i)
        text += fmt::format("{:08} {:02} n 01 x 0 000 | of w{} and v{}\n", i, i % 45, i * stride % 30, i % 7);
      write(name + "/" + file, text);
    }
  }

  // Loads the experiment of each case from this file, and runs its first run.
  void walk(const std::string& toml, const std::vector<KeyCase>& cases, const std::vector<IdleKey>& idle = {}) {
    write("experiment.toml", toml);
    for (const IdleKey& key : idle) idle_.emplace(key.key, key.hash);
    for (const KeyCase& one : cases) {
      const auto base = load(one.given);
      if (!base) continue;
      const std::string result = compute(base->run(), one.given);
      std::map<std::pair<std::string, std::string>, std::string> changes;  // change by key and results
      for (const std::string& change : one.changes) {
        SCOPED_TRACE(fmt::format("{} in {}", change, testing::PrintToString(one.given)));
        auto overrides = one.given;
        overrides.push_back(change);
        const auto changed = load(overrides);
        if (!changed) continue;
        const Patch patch = parse_patch(change);
        const std::string& path = patch.key;
        const std::string changed_result = compute(changed->run(), overrides);
        for (const std::string_view key : deciding)  // a new table may have another kind
          if (patch.value->find(key)) covered_.insert(fmt::format("{}.{}", name_of(path, base->document), key));
        expect_effect(name_of(path, base->document), changed->run().hash != base->run().hash, changed_result != result);
        const auto [other, is_new] = changes.emplace(std::pair(path, changed_result), change);
        EXPECT_TRUE(is_new || changed_result == result) << "computes what " << other->second << " does";
      }
    }
  }

  // Checks that the walk has covered all keys of these sections or, with `others`, of all other sections.
  void expect_completeness(const std::set<std::string>& sections, bool others = false) const {
    const auto is_ours = [&](const std::string& key) {
      return sections.contains(key.substr(0, key.find_first_of(".["))) != others;
    };
    for (const std::string& key : known_)
      EXPECT_TRUE(!is_ours(key) || is_covered(key)) << key << " is a key that no case changes";
    for (const auto& [key, hash] : idle_) EXPECT_TRUE(known_.contains(key)) << key << " is no key any more";
    for (const auto& [key, words] : words_)
      for (const std::string& word : words)
        // Words of `algorithm` may be a user's own methods, and words of a key without an effect have no case.
        EXPECT_TRUE(key == "methods.algorithm" || idle_.contains(key) || !is_ours(key) ||
                    written_.contains({key, word}))
            << key << " is \"" << word << "\" in no case";
  }

  void expect_results_by_version(const std::string& checkout, const std::string& table) const {
    ResultsByVersion(checkout, table).expect(results_);
  }

  std::filesystem::path folder_;

 private:
  // Keys whose words usually determine which other keys their table contains.
  static inline const std::vector<std::string_view> deciding = {"algorithm", "kind", "rule", "name", "code", "form"};

  struct Loaded {
    Experiment experiment;
    TomlNode document;
    const syncopate::Run& run() const { return experiment.runs.front(); }
  };

  // Returns nullopt, and fails the test, if there are faults.
  std::optional<Loaded> load(std::vector<std::string> overrides) {
    for (std::string& text : overrides)
      if (const auto at = text.find('$'); at != std::string::npos) text.replace(at, 1, folder_.string());
    Loaded loaded;
    try {
      loaded.experiment = load_experiment(folder_ / "experiment.toml", overrides);
    } catch (const ConfigurationFault& faults) {
      ADD_FAILURE() << fmt::format("{}: {}", testing::PrintToString(overrides), faults.what());
      return {};
    }
    expect_every_leaf_hashed(loaded.run());
    expect_every_written_leaf_resolved(written_document(folder_ / "experiment.toml", overrides), loaded.run());
    loaded.document = parse_toml(loaded.experiment.resolved_toml, "resolved");
    for (const KnownKey& key : loaded.experiment.known_keys) {
      const std::string name = name_of(key.path, loaded.document);
      known_.insert(name);
      words_[name].insert(key.choices.begin(), key.choices.end());
      const TomlNode* value = found_at(loaded.document, split_key(key.path));
      if (value && !key.choices.empty()) written_.emplace(name, std::get<std::string>(value->value));
    }
    return loaded;
  }

  // Returns everything that a run computes, as text. Records a digest of it for the tables of versions.
  std::string compute(syncopate::Run run, const std::vector<std::string>& overrides) {
    run.recording.parameters = true;
    const Outcome outcome = outcome_of(run);
    std::string name = overrides.empty() ? "as written" : "";
    for (const std::string& text : overrides) name += (name.empty() ? "" : " ") + text;
    EXPECT_EQ(outcome.failure, "") << name;
    results_[name] = digest_and_losses(run, outcome);
    return results_text(run, outcome);
  }

  void expect_effect(const std::string& key, bool on_hash, bool on_result) {
    covered_.insert(key);
    const auto found = idle_.find(key);
    const bool is_idle = found != idle_.end();
    EXPECT_EQ(on_hash, !is_idle || found->second == IdleKey::Hash::differs) << key << ": whether the hash differs";
    EXPECT_EQ(on_result, !is_idle) << key << ": whether what is computed differs";
  }

  static bool is_one_of(std::string_view text, const std::vector<std::string_view>& words) {
    return std::ranges::find(words, text) != words.end();
  }

  // Returns the walk's name of a key, such as "delays[gamma].scale". In place of an entry's number in a list it has the
  // word that determines the keys of the entry's table. The names of keys that all kinds of a table share lack this
  // word.
  static std::string name_of(const std::string& path, const TomlNode& document) {
    static const std::vector<std::string_view> shared = {"label",   "unit",   "scope", "group_size",
                                                         "workers", "bursts", "sleep"};
    std::string name;
    const std::vector<std::string> parts = split_key(path);
    const TomlNode* table = &document;
    for (std::size_t i = 0; i < parts.size(); ++i) {
      if (table && table->is_array()) {
        table = &table->array().at(std::stoul(parts[i]));
        continue;
      }
      const bool of_all =
          is_one_of(parts[i], deciding) || (is_one_of(parts[i], shared) && name == "delays") || parts[i] == "label" ||
          (name == "methods" &&
           (parts[i] == "training" || parts[i] == "average" || parts[i] == "restart" || parts[i] == "compression"));
      for (const std::string_view key : deciding) {
        const TomlNode* kind = table && table != &document && !of_all ? table->find(key) : nullptr;
        if (kind) name += fmt::format("[{}]", std::get<std::string>(kind->value));
      }
      name += (name.empty() ? "" : ".") + parts[i];
      table = table ? table->find(parts[i]) : nullptr;
    }
    return name;
  }

  bool is_covered(const std::string& key) const {
    if (covered_.contains(key) || idle_.contains(key)) return true;
    // A table that one experiment lacks counts as covered if another experiment has changed its keys.
    return std::ranges::any_of(covered_, [&](const std::string& other) {
      return other.starts_with(key) && (other[key.size()] == '.' || other[key.size()] == '[');
    });
  }

  std::set<std::string> known_;                            // keys that a reader has requested
  std::map<std::string, std::set<std::string>> words_;     // words of choices, by key
  std::set<std::pair<std::string, std::string>> written_;  // words of choices in the walk's experiments
  std::set<std::string> covered_;                          // keys that a case has changed
  std::map<std::string, IdleKey::Hash> idle_;
  OrderedJson results_ = OrderedJson::object();
};

}  // namespace syncopate
