#include "workers/settings/toml_nesting.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "workers/settings/toml_tree.hpp"

namespace syncopate {
namespace {

bool is_word(char c) { return std::string_view(" \t\r\n.=,[]{}#\"'").find(c) == std::string_view::npos; }

// The end of the string that begins at `begin`, or the text's: an open string is the parser's to report.
std::size_t end_of_string(std::string_view text, std::size_t begin) {
  const char quote = text[begin];
  const bool is_long = text.substr(begin).starts_with(quote == '"' ? R"(""")" : "'''");
  const std::string_view closing = text.substr(begin, is_long ? 3 : 1);
  for (std::size_t at = begin + closing.size(); at < text.size(); ++at) {
    if (text[at] == '\\' && quote == '"') {
      ++at;
    } else if (text.substr(at).starts_with(closing)) {
      at += closing.size();
      while (is_long && at < text.size() && text[at] == quote) ++at;  // up to two quotes belong to the string
      return at;
    } else if (text[at] == '\n' && !is_long) {
      break;
    }
  }
  return text.size();
}

class NestingScan {
 public:
  NestingScan(std::string_view text, const std::string& source) : text_(text), source_(source) {}

  void run() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
      } else if (is_word(c) || c == '"' || c == '\'') {
        begin_part();
        if (is_word(c))
          while (at_ < text_.size() && is_word(text_[at_])) ++at_;
        else
          at_ = end_of_string(text_, at_);
      } else {
        take(c);
        ++at_;
      }
    }
  }

 private:
  enum class Bracket { header, array, table };
  struct Open {
    Bracket kind;
    int levels;  // that it adds
  };

  void begin_part() {
    const bool is_value = key_parts_ > 0 || (!open_.empty() && open_.back().kind == Bracket::array);
    if (!is_value) parts_ = after_dot_ ? parts_ + 1 : 1;
    after_dot_ = false;
    check();
  }

  void take(char c) {
    if (c == '.') {
      after_dot_ = true;
    } else if (c == '=') {
      key_parts_ = std::exchange(parts_, 0);
    } else if (c == '[' || c == '{') {
      open_.push_back(opened_by(c));
      levels_ += open_.back().levels;
      key_parts_ = parts_ = 0;
      check();
    } else if (c == ']' || c == '}') {
      if (!open_.empty()) {
        levels_ -= open_.back().levels;
        open_.pop_back();
      }
      key_parts_ = parts_ = 0;
    } else if (c == ',' || (c == '\n' && open_.empty())) {
      key_parts_ = parts_ = 0;
    }
  }

  // An array is a level of its own, also that of tables which the second bracket of a header stands for.
  Open opened_by(char c) const {
    if (c == '{') return {Bracket::table, key_parts_};
    if (open_.empty() && key_parts_ == 0) return {Bracket::header, 0};
    const bool is_header = !open_.empty() && open_.back().kind == Bracket::header;
    return {is_header ? Bracket::header : Bracket::array, key_parts_ + 1};
  }

  void check() const {
    if (levels_ + key_parts_ + parts_ <= most_levels) return;
    const std::string_view before = text_.substr(0, at_);
    const auto line_begin = before.rfind('\n') + 1;  // npos + 1 is 0
    const SourcePlace place{source_, static_cast<std::uint32_t>(1 + std::ranges::count(before, '\n')),
                            static_cast<std::uint32_t>(1 + at_ - line_begin)};
    throw TomlSyntaxFault(
        place, fmt::format("a key must have at most {} parts, with the tables and arrays around it", most_levels));
  }

  std::string_view text_;
  const std::string& source_;
  std::size_t at_ = 0;
  std::vector<Open> open_;
  int levels_ = 0;     // of all open brackets
  int key_parts_ = 0;  // of the key before "=", in the innermost bracket
  int parts_ = 0;      // of the key so far
  bool after_dot_ = false;
};

}  // namespace

void check_nesting(std::string_view text, const std::string& source) { NestingScan(text, source).run(); }

}  // namespace syncopate
