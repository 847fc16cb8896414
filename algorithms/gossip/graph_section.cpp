#include "algorithms/gossip/graph_section.hpp"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "algorithms/gossip/weighted_graph.hpp"
#include "workers/network/listed_links.hpp"

namespace syncopate {
namespace {

enum class Kind { ring, torus, hypercube, exponential, one_peer_exponential, complete, file };

// Weights of all pairs are held, and multiplied for the gap.
constexpr int most_workers_of_file = 512;

int largest_divisor_up_to_root(int workers) {
  int rows = std::max(1, static_cast<int>(std::sqrt(workers)));
  while (workers % rows != 0) --rows;
  return rows;
}

GossipGraphPtr read_torus(Settings& table, const AlgorithmContext& context) {
  const int workers = context.workers;
  if (largest_divisor_up_to_root(workers) == 1) {
    table.fault("kind",
                fmt::format("needs a number of workers that can be laid into rows of at least 2, found {}", workers));
    table.keep_as_written({"rows"});
    return nullptr;
  }
  const std::size_t faults = table.faults_so_far();
  const int rows = static_cast<int>(table.integer(
      {"rows", "Into how many rows of equal length the workers are laid."}, 2, 1'000'000,
      Stated(largest_divisor_up_to_root(workers), "the largest divisor of the number of workers up to its root")));
  if (table.faults_so_far() > faults) return nullptr;
  if (!context.workers_known) return nullptr;
  if (workers % rows == 0 && workers / rows > 1) return torus(rows, workers / rows);
  table.fault("rows", fmt::format("must divide the number of workers, {}, into rows of at least 2", workers));
  return nullptr;
}

enum class Weights { degree, metropolis, given };

struct FileKeys {
  ListedLinks links{};
  Weights weights = Weights::degree;
};

FileKeys read_file_keys(Settings& table) {
  FileKeys keys;
  keys.links.go_one_way =
      table.flag({"directed", "Whether a line links its workers one way, from `from` to `to`, or both ways."}, false);
  keys.links.weights = table.has("weights") ? ListedWeights::passed_over : ListedWeights::refused;
  keys.weights = table.choice(
      {"weights",
       "1/(d + 1) by the sender's links (degree) or the larger of both workers' (metropolis), or a third column."},
      {{"degree", Weights::degree}, {"metropolis", Weights::metropolis}, {"given", Weights::given}}, Weights::degree);
  if (keys.weights == Weights::given) keys.links.weights = ListedWeights::read;
  if (keys.links.go_one_way && keys.weights == Weights::metropolis)
    table.fault("weights", "must be \"degree\" or \"given\" where links go one way");
  return keys;
}

std::optional<std::string> why_not(const WeightedGraph& graph, Mixing needed, Weights weights) {
  if (auto why = graph.why_not_connected()) return why;
  if (needed == Mixing::in_pairs) return std::nullopt;
  if (needed == Mixing::column_stochastic) return graph.why_not_column_stochastic();
  auto why = graph.why_not_doubly_stochastic();
  if (why && weights == Weights::degree) *why += "; weights = \"metropolis\" are wherever links go both ways";
  return why;
}

GossipGraphPtr read_file_graph(Settings& table, const AlgorithmContext& context, Mixing needed) {
  const int workers = context.workers;
  const std::size_t faults = table.faults_so_far();
  const FileKeys keys =
      needed == Mixing::in_pairs ? FileKeys{.links = {.weights = ListedWeights::passed_over}} : read_file_keys(table);
  if (context.workers_known && workers > most_workers_of_file)
    table.fault("kind", fmt::format("file is for at most {} workers, found {}", most_workers_of_file, workers));
  auto links = read_listed_links(table, workers, keys.links);
  if (!links || !context.workers_known || table.faults_so_far() > faults) return nullptr;
  if (keys.weights != Weights::given)
    weigh(*links, workers, keys.weights == Weights::degree ? LinkWeights::degree : LinkWeights::metropolis);
  auto graph = std::make_shared<WeightedGraph>(workers, *links);
  const auto why = why_not(*graph, needed, keys.weights);
  if (why) table.fault("file", *why);
  return why ? nullptr : graph;
}

// Of graphs without two sides those in pairs have no use.
std::optional<Kind> read_kind(Settings& table, Mixing needed) {
  const Key key{"kind", "The graph: each worker's neighbours, and their weights."};
  if (needed == Mixing::in_pairs)
    return table.choice<Kind>(
        key, {{"ring", Kind::ring}, {"torus", Kind::torus}, {"hypercube", Kind::hypercube}, {"file", Kind::file}});
  return table.choice<Kind>(key, {{"ring", Kind::ring},
                                  {"torus", Kind::torus},
                                  {"hypercube", Kind::hypercube},
                                  {"exponential", Kind::exponential},
                                  {"one-peer-exponential", Kind::one_peer_exponential},
                                  {"complete", Kind::complete},
                                  {"file", Kind::file}});
}

}  // namespace

GossipGraphPtr read_graph(Settings& settings, const AlgorithmContext& context, Mixing needed,
                          std::string_view sentence) {
  if (!settings.has("graph")) return nullptr;
  const int workers = context.workers;
  Settings table = settings.section({"graph", sentence});
  const auto kind = read_kind(table, needed);
  if (!kind) return nullptr;
  switch (*kind) {
    case Kind::ring:
      return ring(workers);
    case Kind::torus:
      return read_torus(table, context);
    case Kind::hypercube:
      if (std::has_single_bit(static_cast<unsigned>(workers))) return hypercube(workers);
      table.fault("kind", fmt::format("needs a power of two workers, found {}", workers));
      return nullptr;
    case Kind::exponential:
      return exponential_graph(workers);
    case Kind::one_peer_exponential:
      return one_peer_exponential(workers);
    case Kind::complete:
      return complete_graph(workers);
    case Kind::file:
      return read_file_graph(table, context, needed);
  }
  return nullptr;
}

Forecast no_formula_but_gap(const GossipGraph& graph) {
  const double gap = graph.spectral_gap();
  return Forecast::none(
      fmt::format("workers wait for neighbours, who wait for theirs; the graph's spectral gap is {:.4g}", gap));
}

}  // namespace syncopate
