#include "workers/models/masking_section.hpp"

#include <fmt/format.h>

namespace syncopate {
namespace {

// What nothing looks at would pass unseen, however wrong it is.
void forbid(Settings& table, std::string_view by) {
  for (const char* key : {"masked_share", "most_masked", "masking", "mask_copies"}) {
    if (table.has(key))
      table.fault(key, fmt::format("must be left out: only {} looks at it", by));
    else
      table.leave_out(key);
  }
}

}  // namespace

MaskingOptions read_masking(Settings& table, bool is_asked_for, std::string_view by) {
  MaskingOptions options;
  options.share =
      table.number({"masked_share", "Of masked language models: share of a text's tokens that are to be found."},
                   {.low = 0, .high = 1, .low_open = true}, options.share);
  options.most =
      table.integer({"most_masked", "Of masked language models: most tokens of a text that are to be found."}, 1,
                    1 << 20, options.most);
  const bool is_static = table.choice(
      {"masking", "Of masked language models: drawn anew at each visit, or fixed for each copy of a text."},
      {{"dynamic", false}, {"static", true}}, false);
  const std::int64_t copies = table.integer(
      {"mask_copies", "Of static masking: copies of each text, masked once each, which take turns."}, 1, 1 << 20, 10);
  if (is_static)
    options.copies = copies;
  else if (is_asked_for && table.has("mask_copies"))
    table.fault("mask_copies", "must be left out: dynamic masking has no copies");
  else
    table.leave_out("mask_copies");
  if (!is_asked_for) forbid(table, by);
  return options;
}

}  // namespace syncopate
