// One reading of a document in which nothing is written: what the reader is told, and what it has asked. Only the
// sources of Settings and of describe() include this.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace syncopate {

class Exploration {
 public:
  struct Question {
    std::string key;                 // as that of an Answer
    std::vector<std::string> words;  // that may be answered
    std::size_t usual = 0;           // its place: what is answered where nothing is given
    bool operator==(const Question&) const = default;
  };

  explicit Exploration(std::map<std::string, std::string> given) : given_(std::move(given)) {}

  // The place of the answer among the words.
  std::size_t ask(const Question& question) {
    if (std::ranges::find(asked_, question) == asked_.end()) asked_.push_back(question);
    const auto given = given_.find(question.key);
    if (given == given_.end()) return question.usual;
    const auto word = std::ranges::find(question.words, given->second);
    return word == question.words.end() ? question.usual : static_cast<std::size_t>(word - question.words.begin());
  }

  const std::vector<Question>& asked() const { return asked_; }

 private:
  std::map<std::string, std::string> given_;  // by keys
  std::vector<Question> asked_;
};

}  // namespace syncopate
