// The names that an experiment file may use for things: methods, delays, models and so on, by the tables that read
// them.
#pragma once

#include <array>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "workers/settings/key_description.hpp"

namespace syncopate {

inline constexpr std::array<std::string_view, 7> listed_kinds = {"algorithms", "delays",    "networks",  "models",
                                                                 "datasets",   "schedules", "optimizers"};

struct ListedName {
  std::string_view name;
  std::string sentence;
  std::string_view family{};  // those of one stand together below its name
  std::string_view paper{};
  std::string_view evaluated{};  // of a method: which model it publishes
};

// Names that stand at the same place of a file.
struct NameGroup {
  std::string_view kind;   // one of listed_kinds
  std::string_view title;  // with the place
  std::string_view place;  // the key whose words they are
  std::string prefix;      // of their own keys; {} stands for the name
  std::vector<ListedName> names{};
  std::map<std::string, std::string> around{};  // what else the file must say for the place to be there
  bool own_keys_only = false;                   // the prefix is also that of keys which have nothing to do with it
};
std::vector<NameGroup> name_groups();

// What the names of its keys begin with.
std::string prefix_of(const NameGroup& group, std::string_view name);

// The keys that belong to a name: those of its table, or those that exist with it alone.
std::vector<KeyDescription> keys_of(const NameGroup& group, std::string_view name);
// Of those that have been found already.
std::vector<KeyDescription> keys_of(const std::vector<KeyDescription>& all, const NameGroup& group,
                                    std::string_view name);

}  // namespace syncopate
