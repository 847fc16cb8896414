#include "workers/config/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <tuple>

#include "workers/base/files.hpp"
#include "workers/base/terminal_text.hpp"
#include "workers/config/key_path.hpp"

namespace syncopate {

namespace fs = std::filesystem;

// To list the keys of a table, the function that reads the table is called with an empty document. What it reads
// depends on questions: which word a choice has, or whether a key is written. An exploration holds the answers to some
// questions and records all that were asked.
class Exploration {
 public:
  struct Question {
    std::string key;                 // as in a Condition
    std::vector<std::string> words;  // all possible answers
    std::size_t usual = 0;           // index of the default answer
    bool operator==(const Question&) const = default;
  };

  explicit Exploration(std::map<std::string, std::string> given) : given_(std::move(given)) {}

  // Returns the index of the answer among the words.
  std::size_t ask(const Question& question) {
    if (std::ranges::find(asked_, question) == asked_.end()) asked_.push_back(question);
    const auto given = given_.find(question.key);
    if (given == given_.end()) return question.usual;
    const auto word = std::ranges::find(question.words, given->second);
    return word == question.words.end() ? question.usual : static_cast<std::size_t>(word - question.words.begin());
  }

  const std::vector<Question>& asked() const { return asked_; }

 private:
  std::map<std::string, std::string> given_;  // by Question::key
  std::vector<Question> asked_;
};

namespace {

using Answers = std::map<std::string, std::string>;

constexpr std::string_view missing = " is missing; ";  // follows a key that is required

// The key at the beginning of a fault's text.
std::string_view key_of(const std::string& text) { return std::string_view(text).substr(0, text.find_first_of(" ;")); }

// The part of a fault's text by which equal faults are recognised. Leaves out the value of an unknown key, which may
// differ in every run of a sweep, and the reason why a missing key is required.
std::string what_is_wrong(const std::string& text) {
  if (const std::size_t end = text.find(missing); end != text.npos) return text.substr(0, end + missing.size());
  const std::size_t unknown = text.find("; unknown key"), value = text.find(" = ");
  return unknown == text.npos || value > unknown ? text : text.substr(0, value) + text.substr(unknown);
}

std::string found_text(const TomlNode& node) {
  if (node.is_table()) return "a table";
  if (node.is_array_of_tables()) return "an array of tables";
  return shortened(inline_toml(node));
}

std::string listed(const std::vector<std::string>& names) {
  return names.empty() ? "absent, because this table has no keys" : fmt::format("one of {}", fmt::join(names, ", "));
}

bool contains(const Range& range, double value) {
  if (std::isnan(value)) return false;
  if (range.low_open ? value <= range.low : value < range.low) return false;
  return range.high_open ? value < range.high : value <= range.high;
}

std::string range_text(const Range& range) {
  std::string text = range.high_open && std::isinf(range.high) ? "a finite number" : "a number";
  const bool has_low = !std::isinf(range.low);
  if (has_low) text += fmt::format(" {} {}", range.low_open ? "above" : "of at least", range.low);
  if (!std::isinf(range.high))
    text += fmt::format("{} {} {}", has_low ? " and" : "", range.high_open ? "below" : "at most", range.high);
  return text;
}

template <typename Value>
TomlNode::Array array_of(const std::vector<Value>& values) {
  TomlNode::Array array;
  for (const Value& value : values) array.push_back({value, {}});
  return array;
}

// The text of a default or bound in the reference: its words if it depends on other keys, otherwise its value.
template <typename Value>
std::string shown(const Stated<Value>& value) {
  return value.words.empty() ? inline_toml({value.value, {}}) : std::string(value.words);
}
template <typename Value>
std::optional<std::string> shown(const std::optional<Stated<Value>>& value) {
  return value ? std::optional(shown(*value)) : std::nullopt;
}
template <typename Value>
std::optional<std::string> shown(const std::optional<std::vector<Value>>& values) {
  return values ? std::optional(inline_toml({array_of(*values), {}})) : std::nullopt;
}

std::string integer_text(const Stated<std::int64_t>& low, const Stated<std::int64_t>& high) {
  using limits = std::numeric_limits<std::int64_t>;
  if (high.value < limits::max()) return fmt::format("an integer from {} to {}", shown(low), shown(high));
  return low.value > limits::min() ? fmt::format("an integer of at least {}", shown(low)) : "an integer";
}

// A value that replaces a missing or wrong one, so that reading can continue: the lower bound if possible.
double stand_in(const Range& range) {
  if (std::isinf(range.low)) return contains(range, 0) || std::isinf(range.high) ? 0 : range.high;
  if (!range.low_open) return range.low;
  return std::isinf(range.high) ? range.low + 1 : (range.low + range.high) / 2;
}

// These functions convert a node to a value of the given range; to nullopt if it is no such value.
auto as_number(const Range& range) {
  return [range](const TomlNode& node) {
    const std::optional<double> value = number_in(&node);
    return value && contains(range, *value) ? value : std::nullopt;
  };
}

auto as_integer(std::int64_t low, std::int64_t high) {
  return [low, high](const TomlNode& node) {
    const auto* value = std::get_if<std::int64_t>(&node.value);
    return value && *value >= low && *value <= high ? std::optional(*value) : std::nullopt;
  };
}

template <typename Value>
std::optional<Value> as(const TomlNode& node) {
  const auto* value = std::get_if<Value>(&node.value);
  return value ? std::optional(*value) : std::nullopt;
}

std::string listed_words(const std::vector<std::string>& words) {
  return fmt::format("{}\"{}\"", words.size() > 1 ? "one of " : "", fmt::join(words, "\", \""));
}

}  // namespace

void FaultList::add(const SourcePlace& place, std::string text) {
  // The whole command line is one place, so equal texts there are one fault.
  const bool from_command_line = place.source == command_line_source;
  Fault fault{from_command_line ? SourcePlace{place.source} : place, std::move(text)};
  if (known_.insert({fault.place, what_is_wrong(fault.text)}).second) faults_.push_back(std::move(fault));
}

void FaultList::add(const FaultList& others) {
  for (const Fault& fault : others.faults_) add(fault.place, fault.text);
}

void FaultList::add(const FaultList& others, std::initializer_list<std::pair<std::string, std::string>> names) {
  const std::size_t before = faults_.size();
  for (const Fault& fault : others.faults_) {
    if (known_.contains({fault.place, what_is_wrong(fault.text)})) continue;
    const auto* const name =
        std::ranges::find_if(names, [&](const auto& one) { return fault.text.starts_with(one.first); });
    if (name == names.end()) {
      add(fault.place, fault.text);
      continue;
    }
    const std::string rest = fault.text.substr(name->first.size()), key = fmt::format(".{}", key_of(rest));
    const auto is_same = [&](const Fault& other) {
      return other.place == fault.place && key_of(other.text).ends_with(key);
    };
    if (std::ranges::none_of(std::span(faults_).first(before), is_same)) add(fault.place, name->second + rest);
  }
}

void FaultList::explain_missing(const std::function<std::string(const std::vector<std::string>& key)>& reason) {
  for (Fault& fault : faults_) {
    const std::size_t end = fault.text.find(missing);
    if (end == fault.text.npos) continue;
    try {
      fault.text += reason(split_key(fault.text.substr(0, end)));
    } catch (const KeyPathFault&) {  // the text before " is missing" is no key
    }
  }
}

std::string FaultList::report() const {
  std::vector<Fault> sorted = faults_;
  std::ranges::stable_sort(sorted, {}, [](const Fault& fault) {
    return std::tuple(fault.place.source == command_line_source, fault.place.line, fault.place.column);
  });
  constexpr std::size_t most = 50;
  const std::size_t shown = std::min(sorted.size(), most);
  std::string result;
  for (const Fault& fault : std::span(sorted).first(shown)) {
    if (!result.empty()) result += '\n';
    const std::string& origin = fault.place.origin;
    result += fmt::format("{}: {}{}{}", fault.place.text(), origin, origin.empty() ? "" : ": ", fault.text);
  }
  if (sorted.size() > shown) result += fmt::format("\nand {} more faults", sorted.size() - shown);
  return result;
}

// A table that is being read: the written keys, the requested keys, and the values found.
struct Settings::Node {
  // A requested key: a value (maybe the default), a sub-table (one child), an array of tables, or only a known key.
  struct Entry {
    std::string key;
    std::optional<TomlNode> value{};
    std::vector<std::shared_ptr<Node>> children{};
    bool is_array = false;
    std::vector<std::string> choices{};           // the accepted words, for a choice
    std::optional<KeyDescription> description{};  // set if the document is explored
  };

  FaultList* faults = nullptr;
  const TomlNode* written = nullptr;  // the table in the document; null if absent
  std::string source{};               // the experiment file, even for a table from the command line
  SourcePlace place{};                // place of the table's header, or of the nearest existing table above
  std::string path{};                 // "training.learning_rate", "methods.0"; empty for the root
  bool incomplete = false;            // a wrong choice has prevented keys of this table from being read
  bool silent = false;                // the key has a value, not a table; faults that follow from this are not reported
  // Set if an empty document is explored to list the keys that a reader can read.
  Exploration* exploration = nullptr;
  std::vector<Entry> entries{};

  const TomlNode* find(std::string_view key) const { return written ? written->find(key) : nullptr; }

  std::string full_key(std::string_view key) const { return path.empty() ? toml_key(key) : path + "." + toml_key(key); }

  // Returns the entry of a key. Creates it if needed, which makes the key known.
  Entry& entry(std::string_view key) {
    const auto found = std::ranges::find(entries, key, &Entry::key);
    return found != entries.end() ? *found : entries.emplace_back(Entry{.key = std::string(key)});
  }

  template <typename Value>
  void record(std::string_view key, Value value) {
    entry(key).value = TomlNode{std::move(value), {}};
  }

  // Whether a table is written for this key and has been read as a table. If the key is then also read as a value with
  // a default, the default is returned and replaces the table in the resolved configuration.
  bool has_read_table(std::string_view key) const {
    const TomlNode* found = find(key);
    const auto read = std::ranges::find(entries, key, &Entry::key);
    return found && found->is_table() && read != entries.end() && !read->children.empty();
  }

  std::shared_ptr<Node> child(std::string_view key, const TomlNode* table, std::string child_path) const {
    auto node = std::make_shared<Node>();
    node->faults = faults;
    node->path = std::move(child_path);
    node->source = source;
    node->exploration = exploration;
    node->silent = silent || (table && !table->is_table());
    node->written = table && table->is_table() ? table : nullptr;
    node->place = node->written ? node->written->place : place;
    // A table that only other headers imply ([a.b] without [a]) has no place of its own.
    if (node->written && node->place.line == 0) {
      const auto member = std::ranges::find(written->table(), key, &TomlNode::Member::key);
      if (member != written->table().end()) node->place = member->place;
    }
    return node;
  }

  // Where a file or directory may be: `named` in the experiment file's folder, then `named` in the working directory.
  std::vector<fs::path> places_of(const fs::path& named) const {
    const fs::path beside = fs::path(source).parent_path() / named;  // an absolute name replaces the folder
    const bool is_one_place = fs::absolute(beside).lexically_normal() == fs::absolute(named).lexically_normal();
    return is_one_place ? std::vector{named} : std::vector{beside, named};
  }

  void report_at(const TomlNode& found, std::string_view key, const std::string& what) {
    faults->add(found.place, fmt::format("{} = {}; {}", full_key(key), found_text(found), what));
  }

  // Returns "key = found" or, if the key is absent, the key with its default if it has one. Makes the key known.
  std::string with_value(std::string_view key) {
    const std::optional<TomlNode>& usual = entry(key).value;
    if (const TomlNode* found = find(key)) return fmt::format("{} = {}", full_key(key), found_text(*found));
    return usual ? fmt::format("{} = {} (the default)", full_key(key), inline_toml(*usual)) : full_key(key);
  }

  // Reports "key = found; must be <what>" at the value's place or, if the key is absent, "key is missing; must be
  // <what>" at the table's place.
  void report_wrong(std::string_view key, const std::string& what) {
    if (const TomlNode* found = find(key))
      report_at(*found, key, "must be " + what);
    else if (!silent)
      faults->add(place, fmt::format("{} is missing; must be {}", full_key(key), what));
  }

  // Reports unknown keys of this table and of its sub-tables.
  void report_unread() const {
    if (!written) return;
    std::vector<std::string> known;
    for (const Entry& entry : entries)  // does not suggest digests, which only the program writes
      if (!entry.key.ends_with("_hash")) known.push_back(entry.key);
    for (const auto& [key, key_place, value] : written->table()) {
      if (std::ranges::find(entries, key, &Entry::key) != entries.end()) continue;
      std::string hint = suggestion(key, known);
      if (hint.empty() && incomplete) continue;  // the key may belong to a choice that was misspelt
      if (hint.empty()) hint = "; must be " + listed(known);
      faults->add(key_place, fmt::format("{} = {}; unknown key{}", full_key(key), found_text(value), hint));
    }
    for (const Entry& entry : entries)
      for (const auto& child : entry.children) child->report_unread();
  }

  // If the document is explored, stores a key's description, unless it already has one.
  void describe(const Key& key, std::string takes, std::optional<std::string> fallback, bool required) {
    if (!exploration) return;
    Entry& described = entry(key.name);
    if (described.description) return;
    described.description = KeyDescription{.path = full_key(key.name),
                                           .takes = std::move(takes),
                                           .unit = std::string(key.unit),
                                           .fallback = std::move(fallback),
                                           .left_out = std::string(key.left_out),
                                           .required = required,
                                           .sentence = std::string(key.sentence)};
  }

  void describe_table(const Key& key, KeyDescription::Kind kind) {
    describe(key, kind == KeyDescription::Kind::table ? "a table" : "tables", {}, false);
    if (exploration) entry(key.name).description->kind = kind;
  }

  // These two functions ask the exploration: whether a key is written, and which word a choice has.
  bool explored_presence(std::string_view key) const {
    return exploration->ask({full_key(key) + "?", {absent, present}}) == 1;
  }

  std::optional<std::size_t> explored_word(const Key& key, std::span<const Alternative> words,
                                           std::optional<std::size_t> fallback, std::string_view fallback_words) {
    const std::vector<std::string> names = entry(key.name).choices;
    const std::string usual = fallback ? fmt::format("\"{}\"", names[*fallback]) : "";
    describe(key, "a word",
             fallback ? std::optional(fallback_words.empty() ? usual : std::string(fallback_words)) : std::nullopt,
             !fallback);
    Entry& described = entry(key.name);
    if (described.description->words.empty())
      for (const Alternative& word : words) described.description->words.emplace_back(word.name, word.sentence);
    const std::size_t place = exploration->ask({full_key(key.name), names, fallback.value_or(0)});
    record(key.name, names[place]);
    return place;
  }

  // Returns and records the written value if it is valid, otherwise the fallback or, without a fallback, the stand-in.
  // Reports a fault if the written value is invalid or a required key is missing. `takes` describes valid values in the
  // reference, and `must_be` in messages.
  template <typename Value, typename Convert>
  Value read(const Key& key, const std::string& takes, const Convert& convert,
             const std::optional<Stated<Value>>& fallback, Value stand_in, const std::string& must_be) {
    describe(key, takes, shown(fallback), !fallback);
    std::optional<Value> value;
    const TomlNode* found = find(key.name);
    if (found && fallback && has_read_table(key.name)) found = nullptr;
    if (found) value = convert(*found);
    if (!value && (found || !fallback)) report_wrong(key.name, must_be);
    if (!value) value = fallback ? fallback->value : std::move(stand_in);
    record(key.name, *value);
    return *value;
  }

  // Like read(), for a list; each wrong element is reported at its own place.
  template <typename Value, typename Convert>
  std::vector<Value> read_list(const Key& key, const std::string& takes, const Convert& convert,
                               const std::optional<std::vector<Value>>& fallback, const std::string& must_be) {
    describe(key, "a list, each element " + takes, shown(fallback), !fallback);
    std::vector<Value> taken = fallback.value_or(std::vector<Value>{});
    const TomlNode* found = find(key.name);
    if (found && found->is_array()) {
      taken.clear();
      for (const TomlNode& one : found->array()) {
        const std::optional<Value> value = convert(one);
        if (!value) report_at(one, key.name, "each element must be " + must_be);
        if (value) taken.push_back(*value);
      }
    } else if (found || !fallback) {
      report_wrong(key.name, "a list [...], each element " + must_be);
    }
    record(key.name, array_of(taken));
    return taken;
  }

  TomlNode resolved() const {  // the values that were read, in reading order
    TomlNode table;
    for (const Entry& entry : entries) {
      if (entry.value) {
        table.set(entry.key, {}, *entry.value);
      } else if (entry.is_array) {
        TomlNode::Array elements;
        for (const auto& child : entry.children) elements.push_back(child->resolved());
        if (!elements.empty()) table.set(entry.key, {}, {std::move(elements), {}});
      } else if (!entry.children.empty()) {
        TomlNode child = entry.children.front()->resolved();
        if (!child.table().empty()) table.set(entry.key, {}, std::move(child));
      }
    }
    return table;
  }

  void add_known_keys(std::vector<KnownKey>& keys) const {
    for (const Entry& entry : entries) {
      if (entry.children.empty()) keys.push_back({full_key(entry.key), entry.choices});
      for (const auto& child : entry.children) child->add_known_keys(keys);
    }
  }

  void add_descriptions(std::vector<KeyDescription>& keys) const {
    for (const Entry& entry : entries) {
      if (entry.description) keys.push_back(*entry.description);
      for (const auto& child : entry.children) child->add_descriptions(keys);
    }
  }
};

double Settings::number(const Key& key, Range range, const std::optional<Stated<double>>& fallback) {
  const std::string takes = range_text(range);
  return node_->read<double>(key, takes, as_number(range), fallback, stand_in(range), takes);
}

std::int64_t Settings::integer(const Key& key, const Stated<std::int64_t>& low, const Stated<std::int64_t>& high,
                               const std::optional<Stated<std::int64_t>>& fallback) {
  return node_->read<std::int64_t>(key, integer_text(low, high), as_integer(low.value, high.value), fallback, low.value,
                                   integer_text(low.value, high.value));
}

std::optional<double> Settings::optional_number(const Key& key, Range range) {
  node_->describe(key, range_text(range), {}, false);
  return has(key.name) ? std::optional(number(key, range)) : std::nullopt;
}

std::optional<std::int64_t> Settings::optional_integer(const Key& key, const Stated<std::int64_t>& low,
                                                       const Stated<std::int64_t>& high) {
  node_->describe(key, integer_text(low, high), {}, false);
  return has(key.name) ? std::optional(integer(key, low, high)) : std::nullopt;
}

bool Settings::flag(const Key& key, std::optional<bool> fallback) {
  return node_->read<bool>(key, "true or false", as<bool>, fallback, false, "true or false");
}

std::optional<bool> Settings::optional_flag(const Key& key) {
  node_->describe(key, "true or false", {}, false);
  return has(key.name) ? std::optional(flag(key)) : std::nullopt;
}

std::string Settings::text(const Key& key, const std::optional<Stated<std::string>>& fallback) {
  return node_->read<std::string>(key, "a string", as<std::string>, fallback, "", "a string");
}

std::optional<std::size_t> Settings::place_of_word(const Key& key, std::span<const Alternative> words,
                                                   std::optional<std::size_t> fallback,
                                                   std::string_view fallback_words) {
  std::vector<std::string> known;
  for (const Alternative& word : words) known.emplace_back(word.name);
  node_->entry(key.name).choices = known;
  if (node_->exploration) return node_->explored_word(key, words, fallback, fallback_words);

  const TomlNode* written = node_->find(key.name);
  const auto* const name = written ? std::get_if<std::string>(&written->value) : nullptr;
  const auto found = name ? std::ranges::find(known, *name) : known.end();
  auto taken = fallback;
  if (found != known.end()) {
    taken = static_cast<std::size_t>(found - known.begin());
  } else if (written || !fallback) {
    node_->incomplete = true;
    if (name)
      node_->report_at(*written, key.name, must_be_one_of(*name, known, "\""));
    else
      node_->report_wrong(key.name, listed_words(known));
  }
  node_->record(key.name, taken ? known[*taken] : "");
  return taken;
}

std::vector<double> Settings::numbers(const Key& key, Range range, const std::optional<std::vector<double>>& fallback) {
  return node_->read_list<double>(key, range_text(range), as_number(range), fallback, range_text(range));
}

std::vector<std::int64_t> Settings::integers(const Key& key, const Stated<std::int64_t>& low,
                                             const Stated<std::int64_t>& high,
                                             const std::optional<std::vector<std::int64_t>>& fallback) {
  return node_->read_list<std::int64_t>(key, integer_text(low, high), as_integer(low.value, high.value), fallback,
                                        integer_text(low.value, high.value));
}

std::vector<std::string> Settings::texts(const Key& key, const std::optional<std::vector<std::string>>& fallback) {
  return node_->read_list<std::string>(key, "a string", as<std::string>, fallback, "a string");
}

std::vector<std::string> Settings::keys() const {
  std::vector<std::string> result;
  if (node_->written)
    for (const TomlNode::Member& member : node_->written->table()) result.push_back(member.key);
  return result;
}

bool Settings::has(const Key& key) const {
  node_->entry(key.name);  // makes the key known, so that it can be suggested
  if (!key.sentence.empty()) node_->describe(key, "a string", {}, false);
  return node_->exploration ? node_->explored_presence(key.name) : node_->find(key.name) != nullptr;
}

bool Settings::has_table(const Key& key) const {
  node_->entry(key.name);
  if (node_->exploration) return node_->explored_presence(key.name);
  const TomlNode* written = node_->find(key.name);
  return written && written->is_table();
}

void Settings::refuse(std::string_view key, std::string_view reason) {
  node_->entry(key);  // makes the key known, so that it is reported once
  if (node_->find(key)) fault(key, fmt::format("must be left out: {}", reason));
}

std::optional<std::string> Settings::word(std::string_view key) const {
  const TomlNode* written = node_->find(key);
  return written ? as<std::string>(*written) : std::nullopt;
}

std::string Settings::written(std::string_view key) const {
  return fmt::format("{}: {}", place(key).text(), node_->with_value(key));
}

SourcePlace Settings::place(std::string_view key) const {
  const TomlNode* written = node_->find(key);
  return written ? written->place : node_->place;
}

std::size_t Settings::faults_so_far() const { return node_->faults->size(); }

void Settings::leave_out(std::string_view key) { node_->entry(key).value.reset(); }

void Settings::leave_out_unwritten_table(std::string_view key) {
  if (!node_->find(key)) node_->entry(key).children.clear();
}

Settings Settings::section(const Key& described) {
  const std::string_view key = described.name;
  const TomlNode* written = node_->find(key);
  if (!described.sentence.empty()) node_->describe_table(described, KeyDescription::Kind::table);
  if (written && !written->is_table()) node_->report_wrong(key, fmt::format("a table, [{}]", node_->full_key(key)));
  Node::Entry& entry = node_->entry(key);
  if (entry.children.empty()) entry.children.push_back(node_->child(key, written, node_->full_key(key)));
  Settings result;
  result.node_ = entry.children.front();
  return result;
}

std::vector<Settings> Settings::sections(const Key& described) {
  const std::string_view key = described.name;
  const TomlNode* written = node_->find(key);
  const bool is_list = written && (written->is_array_of_tables() || (written->is_array() && written->array().empty()));
  if (written && !is_list) node_->report_wrong(key, fmt::format("an array of tables, [[{}]]", node_->full_key(key)));
  Node::Entry& entry = node_->entry(key);
  entry.is_array = true;
  if (node_->exploration) {  // reads it as if it had one entry
    Settings one = section({key});
    node_->describe_table(described, KeyDescription::Kind::array_of_tables);
    return {one};
  }
  std::vector<Settings> result;
  for (std::size_t i = 0; is_list && i < written->array().size(); ++i) {
    const TomlNode& element = written->array()[i];
    if (entry.children.size() <= i)
      entry.children.push_back(node_->child(key, &element, fmt::format("{}.{}", node_->full_key(key), i)));
    result.emplace_back().node_ = entry.children[i];
  }
  return result;
}

void Settings::keep_as_written(const Key& key) {
  if (!key.sentence.empty()) node_->describe_table(key, KeyDescription::Kind::table);
  Node::Entry& entry = node_->entry(key.name);
  if (const TomlNode* written = node_->find(key.name)) entry.value = *written;
}

void Settings::fault(std::string_view key, std::string_view message) {
  if (key.empty()) {  // the fault concerns the whole table
    if (!node_->silent) node_->faults->add(node_->place, fmt::format("{}; {}", node_->path, message));
    return;
  }
  const TomlNode* const written = node_->find(key);
  // A caller that rejects a name does not read the keys that belong to this name.
  if (written && std::holds_alternative<std::string>(written->value)) node_->incomplete = true;
  const std::string found = node_->with_value(key);
  if (written || !node_->silent) node_->faults->add(place(key), fmt::format("{}; {}", found, message));
}

namespace {

constexpr std::uintmax_t most_bytes = 64'000'000;  // limit for an experiment file

// Checks a file before it is opened, because reading a device may never end, and opening a pipe can block forever.
void check_file(const std::string& file) {
  if (file.empty()) throw TomlSyntaxFault("the name of the experiment file is empty");
  std::error_code problem;
  const fs::file_status status = fs::status(file, problem);
  if (!fs::exists(status)) return;  // opening the file reports the reason
  const char* const found = fs::is_directory(status) ? "a directory" : "a device or a pipe";
  if (!fs::is_regular_file(status))
    throw TomlSyntaxFault(fmt::format("{}: is {}; must be an experiment file", file, found));
  const std::uintmax_t bytes = fs::file_size(file, problem);
  if (!problem && bytes > most_bytes)
    throw TomlSyntaxFault(fmt::format("{}: has {} MB; an experiment file must have at most {}", file, bytes / 1'000'000,
                                      most_bytes / 1'000'000));
}

std::string second_of(const std::vector<fs::path>& places) {
  return places.size() > 1 ? fmt::format(", nor {}", fs::absolute(places[1]).string()) : "";
}

// Whether anything exists at the path, including a dangling link.
bool exists_as_anything(const fs::path& place) {
  std::error_code ignored;
  return fs::symlink_status(place, ignored).type() != fs::file_type::not_found;
}

// A question, and for each of its words the reading that has this answer and is otherwise the same.
struct Fork {
  Exploration::Question question;
  std::vector<std::size_t> readings;
};

// One reading of an empty document: its answers (except the fixed ones), the questions it asked, and the keys it read.
struct Reading {
  std::size_t parent = 0;  // index of the reading from which this one differs by one more answer
  Answers answers;
  std::vector<Exploration::Question> asked;
  std::vector<bool> keys{};   // by index in descriptions_; a shorter vector has none of the later keys
  std::vector<Fork> forks{};  // those whose usual word leads to this reading

  bool has(std::size_t key) const { return key < keys.size() && keys[key]; }
  bool asks(const Exploration::Question& question) const { return std::ranges::find(asked, question) != asked.end(); }
};

// Answers with which a key is read: for each question, the words that lead to the key.
using Way = std::map<std::string, std::set<std::string>>;

class Readings {
 public:
  Readings(const std::function<void(Settings&)>& read, const Answers& fixed) : read_(read), fixed_(fixed) {
    add(0, {});
    for (std::size_t i = 0; i < readings_.size(); ++i) branch(i);
  }

  // A key is optional if the program reads it only when the file contains it. Some keys are required with one value of
  // another key, and optional with its other values. Such a key is listed twice.
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
  std::size_t add(std::size_t parent, Answers answers) {
    Answers given = fixed_;
    given.insert(answers.begin(), answers.end());
    Exploration exploration(std::move(given));
    SettingsDocument document(exploration);
    Settings root = document.root();
    read_(root);
    Reading& reading = readings_.emplace_back(Reading{parent, std::move(answers), exploration.asked()});
    for (KeyDescription& key : document.descriptions()) {
      const std::size_t place = place_of(std::move(key));
      if (place >= reading.keys.size()) reading.keys.resize(place + 1);
      reading.keys[place] = true;
    }
    return readings_.size() - 1;
  }

  std::size_t place_of(KeyDescription key) {
    std::vector<std::size_t>& places = places_[key.path];
    for (const std::size_t place : places)
      if (descriptions_[place] == key) return place;
    places.push_back(descriptions_.size());
    descriptions_.push_back(std::move(key));
    return places.back();
  }

  // Adds a reading for each word of each question that the reading's parent has not asked.
  void branch(std::size_t index) {
    const std::vector<Exploration::Question> asked = readings_[index].asked;
    for (const Exploration::Question& question : asked) {
      const bool is_new = index == 0 || !readings_[readings_[index].parent].asks(question);
      if (!is_new || fixed_.contains(question.key)) continue;
      Fork fork{question, {}};
      for (std::size_t word = 0; word < question.words.size(); ++word) {
        Answers answers = readings_[index].answers;
        answers[question.key] = question.words[word];
        fork.readings.push_back(word == question.usual ? index : add(index, std::move(answers)));
      }
      readings_[index].forks.push_back(std::move(fork));
    }
  }

  // Returns a Way for each reading that reads the key and whose parent does not. The Way contains the answers that lead
  // to this reading, and those answers to the reading's own questions with which the key is still read. The second list
  // contains the Ways with the answer that the key itself is written.
  std::pair<std::vector<Way>, std::vector<Way>> ways_to(std::size_t key) const {
    std::vector<Way> always, where_written;
    for (std::size_t i = 0; i < readings_.size(); ++i) {
      const bool is_first = readings_[i].has(key) && (i == 0 || !readings_[readings_[i].parent].has(key));
      if (!is_first) continue;
      Way way;
      for (const auto& [question, word] : readings_[i].answers) way[question].insert(word);
      for (const Fork& fork : readings_[i].forks) narrow(way, fork, [&](const Reading& one) { return one.has(key); });
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

  // Restricts the Way to the words of a question whose readings fulfil `holds`.
  template <typename Holds>
  void narrow(Way& way, const Fork& fork, const Holds& holds) const {
    std::set<std::string> words;
    for (std::size_t word = 0; word < fork.readings.size(); ++word)
      if (holds(readings_[fork.readings[word]])) words.insert(fork.question.words[word]);
    if (words.size() < fork.question.words.size()) way[fork.question.key] = std::move(words);
  }

  // A reading differs from its parent by its answer to one of the parent's questions. Restricts the Way to the words of
  // the parent's other questions with which the program still asks that question. Ignores questions whether a key is
  // written, because a program that has found one key may not ask for others.
  void narrow_to_askers(Way& way, std::size_t reading) const {
    for (; reading != 0; reading = readings_[reading].parent) {
      const Reading& parent = readings_[readings_[reading].parent];
      for (const Exploration::Question& question : parent.asked) {
        if (parent.answers.contains(question.key) || !readings_[reading].answers.contains(question.key)) continue;
        for (const Fork& fork : parent.forks)
          if (!fork.question.key.ends_with('?'))
            narrow(way, fork, [&](const Reading& one) { return one.asks(question); });
      }
    }
  }

  // Joins Ways that differ only in the words of one question.
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
  std::vector<Reading> readings_;                           // each after its parent
  std::vector<KeyDescription> descriptions_;                // in the order of discovery
  std::map<std::string, std::vector<std::size_t>> places_;  // indices in descriptions_, by the key's path
};

}  // namespace

std::vector<fs::path> Settings::places_of_path(const Key& key, const char* takes) {
  node_->describe(key, takes, {}, true);
  const std::size_t faults = faults_so_far();
  const std::string named = text(key.name);
  return faults_so_far() > faults ? std::vector<fs::path>{} : node_->places_of(named);
}

fs::path Settings::file(const Key& described, std::span<const std::string> names) {
  const std::string_view key = described.name;
  const std::vector<fs::path> places = places_of_path(described, "the name of a file");
  if (places.empty()) return {};
  std::error_code ignored;
  for (const fs::path& place : places) {
    if (!fs::is_regular_file(place, ignored)) continue;
    node_->record(key, fs::absolute(place).lexically_normal().string());
    return place;
  }
  const bool is_named = !places.back().empty();
  const auto other = std::ranges::find_if(places, [&](const fs::path& place) { return fs::exists(place, ignored); });
  if (!is_named)
    fault(key, "must be the name of a file");
  else if (other != places.end())
    fault(key, fmt::format("{} is {}; must be a file", other->string(),
                           fs::is_directory(*other, ignored) ? "a directory" : "a device or a pipe"));
  else
    fault(key, fmt::format("there is no file {}{}{}", places.front().string(), second_of(places),
                           suggestion(places.front().filename().string(), names)));
  return {};
}

fs::path Settings::directory(const Key& described) {
  const std::string_view key = described.name;
  const std::vector<fs::path> places = places_of_path(described, "the name of a directory");
  if (places.empty()) return {};
  std::error_code ignored;
  auto found = std::ranges::find_if(places, [&](const fs::path& place) { return fs::is_directory(place, ignored); });
  if (found == places.end()) found = std::ranges::find_if(places, exists_as_anything);
  if (found == places.end()) {
    fault(key, fmt::format("{}: no such directory{}", places.front().string(), second_of(places)));
    return {};
  }
  node_->record(key, fs::absolute(*found).lexically_normal().string());
  return *found;
}

TomlNode load_toml(const std::string& file) {
  check_file(file);
  try {
    const std::string text = whole_file(file, most_bytes);
    if (const std::string form = foreign_form(text); !form.empty())
      throw TomlSyntaxFault(fmt::format("{}: is {}; must be an experiment file in UTF-8", file, form));
    return parse_toml(text, file);
  } catch (const std::system_error& problem) {
    throw TomlSyntaxFault(fmt::format("{}: cannot be read: {}", file, problem.code().message()));
  }
}

SettingsDocument::SettingsDocument(TomlNode root) : written_(std::move(root)) {
  root_.node_ = std::make_shared<Settings::Node>();
  root_.node_->faults = &faults_;
  root_.node_->written = &written_;
  root_.node_->place = written_.place;
  root_.node_->source = written_.place.source;
}

SettingsDocument::SettingsDocument(Exploration& exploration) : SettingsDocument(TomlNode{}) {
  root_.node_->exploration = &exploration;
}

SettingsDocument::~SettingsDocument() = default;

Settings SettingsDocument::root() { return root_; }

const FaultList& SettingsDocument::check() {
  root_.node_->report_unread();
  return faults_;
}

TomlNode SettingsDocument::resolved() const { return root_.node_->resolved(); }

std::vector<KnownKey> SettingsDocument::known_keys() const {
  std::vector<KnownKey> keys;
  root_.node_->add_known_keys(keys);
  return keys;
}

std::vector<KeyDescription> SettingsDocument::descriptions() const {
  std::vector<KeyDescription> keys;
  root_.node_->add_descriptions(keys);
  return keys;
}

std::vector<KeyDescription> describe(const std::function<void(Settings&)>& read, const Answers& fixed) {
  return Readings(read, fixed).keys();
}

}  // namespace syncopate
