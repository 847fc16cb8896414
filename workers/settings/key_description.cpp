#include "workers/settings/key_description.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "workers/settings/exploration.hpp"
#include "workers/settings/settings_document.hpp"

namespace syncopate {
namespace {

using Answers = std::map<std::string, std::string>;

// One reading: what it was told beside what is fixed, and what it found.
struct Reading {
  std::size_t parent = 0;  // the reading that differs by one answer, which asked the question
  Answers told;
  std::vector<Exploration::Question> asked;
  std::set<std::size_t> keys;  // their places among all descriptions

  bool asks(const Exploration::Question& question) const { return std::ranges::find(asked, question) != asked.end(); }
};

using Way = std::map<std::string, std::set<std::string>>;  // to a key: the words of each question

// A question and the readings in which it alone is answered otherwise, by its words' places.
struct Fork {
  Exploration::Question question;
  std::vector<std::size_t> readings;
};

class Readings {
 public:
  Readings(const std::function<void(Settings&)>& read, const Answers& fixed) : read_(read), fixed_(fixed) {
    add(0, {});
    for (std::size_t i = 0; i < readings_.size(); ++i) branch(i);
  }

  // A key that is read where it is written alone may be left out; where it is read in any case too, it is there twice.
  std::vector<KeyDescription> keys() const {
    std::vector<KeyDescription> result;
    for (std::size_t i = 0; i < descriptions_.size(); ++i) {
      KeyDescription key = descriptions_[i];
      const auto [always, where_written] = ways_to(i);
      if (!always.empty()) {
        key.conditions = conditions_of(always);
        result.push_back(key);
      }
      if (!where_written.empty() && (always.empty() || key.required)) {
        key.conditions = conditions_of(where_written);
        key.required = false;
        result.push_back(std::move(key));
      }
    }
    return result;
  }

 private:
  std::size_t add(std::size_t parent, Answers told) {
    Answers given = fixed_;
    given.insert(told.begin(), told.end());
    Exploration exploration(std::move(given));
    SettingsDocument document(exploration);
    Settings root = document.root();
    read_(root);
    readings_.push_back({parent, std::move(told), exploration.asked(), {}});
    for (KeyDescription& key : document.descriptions()) readings_.back().keys.insert(place_of(std::move(key)));
    return readings_.size() - 1;
  }

  std::size_t place_of(KeyDescription key) {
    const auto known = std::ranges::find(descriptions_, key);
    if (known != descriptions_.end()) return static_cast<std::size_t>(known - descriptions_.begin());
    descriptions_.push_back(std::move(key));
    return descriptions_.size() - 1;
  }

  // Tries all words of the questions that its parent has not asked.
  void branch(std::size_t index) {
    const std::vector<Exploration::Question> asked = readings_[index].asked;
    for (const Exploration::Question& question : asked) {
      const bool is_new = index == 0 || !readings_[readings_[index].parent].asks(question);
      if (!is_new || fixed_.contains(question.key)) continue;
      Fork fork{question, {}};
      for (std::size_t word = 0; word < question.words.size(); ++word) {
        Answers told = readings_[index].told;
        told[question.key] = question.words[word];
        fork.readings.push_back(word == question.usual ? index : add(index, std::move(told)));
      }
      forks_.push_back(std::move(fork));
    }
  }

  // The answers that lead to each reading that first has it, and those of its own questions that keep it. Second: the
  // same where one of them is that it is written itself.
  std::pair<std::vector<Way>, std::vector<Way>> ways_to(std::size_t key) const {
    std::vector<Way> always, where_written;
    for (std::size_t i = 0; i < readings_.size(); ++i) {
      const bool is_first =
          readings_[i].keys.contains(key) && (i == 0 || !readings_[readings_[i].parent].keys.contains(key));
      if (!is_first) continue;
      Way way;
      for (const auto& [question, word] : readings_[i].told) way[question].insert(word);
      for (const Fork& fork : forks_) narrow(way, fork, i, key);
      narrow_to_askers(way, i);
      (way.erase(descriptions_[key].path + "?") > 0 ? where_written : always).push_back(std::move(way));
    }
    return {joined(std::move(always)), joined(std::move(where_written))};
  }

  static std::vector<std::vector<Condition>> conditions_of(const std::vector<Way>& ways) {
    std::vector<std::vector<Condition>> result;
    for (const Way& way : ways) {
      if (way.empty()) return {};
      std::vector<Condition>& all = result.emplace_back();
      for (const auto& [question, words] : way) all.push_back({question, {words.begin(), words.end()}});
    }
    return result;
  }

  void narrow(Way& way, const Fork& fork, std::size_t reading, std::size_t key) const {
    if (fork.readings[fork.question.usual] != reading) return;
    std::set<std::string> words;
    for (std::size_t word = 0; word < fork.readings.size(); ++word)
      if (readings_[fork.readings[word]].keys.contains(key)) words.insert(fork.question.words[word]);
    if (words.size() < fork.question.words.size()) way[fork.question.key] = std::move(words);
  }

  // What was told was an answer to a question that its parent has asked, and that others may not ask which differ from
  // the parent by one word. Not by whether a key is written: who has asked about one may just need no other.
  void narrow_to_askers(Way& way, std::size_t reading) const {
    for (; reading != 0; reading = readings_[reading].parent) {
      const Reading& parent = readings_[readings_[reading].parent];
      for (const Exploration::Question& question : parent.asked) {
        if (parent.told.contains(question.key) || !readings_[reading].told.contains(question.key)) continue;
        for (const Fork& fork : forks_) {
          if (fork.readings[fork.question.usual] != readings_[reading].parent || fork.question.key.ends_with('?'))
            continue;
          std::set<std::string> words;
          for (std::size_t word = 0; word < fork.readings.size(); ++word)
            if (readings_[fork.readings[word]].asks(question)) words.insert(fork.question.words[word]);
          if (words.size() < fork.question.words.size()) way[fork.question.key] = std::move(words);
        }
      }
    }
  }

  // Ways that differ by the words of one question are one.
  static std::vector<Way> joined(std::vector<Way> ways) {
    for (std::size_t i = 0; i < ways.size(); ++i)
      for (std::size_t j = i + 1; j < ways.size(); ++j)
        if (join(ways[i], ways[j])) {
          ways.erase(ways.begin() + static_cast<std::ptrdiff_t>(j));
          return joined(std::move(ways));
        }
    return ways;
  }

  static bool join(Way& into, const Way& way) {
    const auto question_of = [](const auto& pair) { return pair.first; };
    if (!std::ranges::equal(into, way, {}, question_of, question_of)) return false;
    std::vector<std::string> different;
    for (const auto& [question, words] : way)
      if (into.at(question) != words) different.push_back(question);
    if (different.size() > 1) return false;
    for (const std::string& question : different) {
      std::set<std::string>& words = into.at(question);
      words.insert(way.at(question).begin(), way.at(question).end());
      if (words == std::set<std::string>{absent, present}) into.erase(question);
    }
    return true;
  }

  const std::function<void(Settings&)>& read_;
  const Answers& fixed_;
  std::vector<Reading> readings_;  // those that differ by an answer behind the one that they differ from
  std::vector<Fork> forks_;
  std::vector<KeyDescription> descriptions_;  // in the order in which they were found
};

}  // namespace

std::vector<KeyDescription> describe(const std::function<void(Settings&)>& read, const Answers& fixed) {
  return Readings(read, fixed).keys();
}

}  // namespace syncopate
