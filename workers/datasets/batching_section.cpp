#include "workers/datasets/batching_section.hpp"

#include <fmt/format.h>

#include <string>

namespace syncopate {

BatchingOptions read_batching(Settings& training) {
  BatchingOptions options;
  options.kind = training.choice(
      {"batching", "How sequences make a micro-batch: by number, padded, packed to a budget, or of about one length."},
      {{"count", Batching::count},
       {"padded", Batching::padded},
       {"packed", Batching::packed},
       {"bucketed", Batching::bucketed}},
      options.kind);
  const char* const name = "token_budget";
  constexpr std::int64_t most = 1 << 30;
  if (options.kind == Batching::packed)
    options.token_budget = training.integer(
        {name, "Most tokens of a packed micro-batch; a longer sequence stands alone.", "tokens"}, 1, most);
  else
    training.optional_integer(
        {name, "Of batching = \"packed\" alone; no effect here, allowed so that batching can be swept.", "tokens"}, 1,
        most);
  return options;
}

bool suits_batching(const DatasetPlan& data, const BatchingOptions& batching, std::string_view dataset,
                    Settings& training) {
  if (batching.kind == Batching::count || data.size.shape.has_tokens()) return true;
  training.fault("batching", fmt::format("must be \"count\": the samples of {} are no sequences", dataset));
  return false;
}

}  // namespace syncopate
