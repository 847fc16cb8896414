#include "workers/compression/compression_names.hpp"

namespace syncopate {
namespace {

using Kind = CompressionOptions::Kind;

constexpr CompressionRow rows_of_gradients[] = {
    {"top-k", "The largest values by magnitude, with their places: all-gathered.", Kind::top_k},
    {"dgc", "As top-k, of momentum that each worker accumulates (Deep Gradient Compression).", Kind::dgc},
    {"random-k", "Values at random places, the same on all workers: all-reduced.", Kind::random_k},
    {"scalecom", "Values at the largest places of one worker, each in its turn (ScaleCom): all-reduced.",
     Kind::scalecom},
    {"sign", "Signs, and the mean magnitude (EF-signSGD): all-gathered.", Kind::sign},
    {"one-bit", "Signs, and of each sign the mean, by columns of matrices (1-bit SGD): all-gathered.", Kind::one_bit},
    {"majority", "Signs, of which the majority's is the step's (signSGD, Signum): all-gathered.", Kind::majority},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD): all-gathered.", Kind::qsgd},
    {"powersgd", "Two factors of each matrix (PowerSGD): all-reduced, one after the other.", Kind::power},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1): all-gathered.", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest: all-gathered.", Kind::fp4},
    {"sparse-rows", "Rows of embeddings that are not zero, with their places: all-gathered; the rest: all-reduced.",
     Kind::rows},
};
constexpr CompressionRow rows_of_averages[] = {
    {"top-k", "The largest differences by magnitude, with their places: all-gathered.", Kind::top_k},
    {"random-k", "Differences at random places, the same on all workers: all-reduced.", Kind::random_k},
    {"sign", "Signs, and the mean magnitude: all-gathered.", Kind::sign},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD): all-gathered.", Kind::qsgd},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1): all-gathered.", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest: all-gathered.", Kind::fp4},
    {"none", "The models as they are: all-reduced.", Kind::random_k},
};

constexpr CompressionRow rows_of_messages[] = {
    {"top-k", "The largest values by magnitude, with their places.", Kind::top_k},
    {"random-k", "Values at random places, which both sides draw.", Kind::random_k},
    {"sign", "Signs, and the mean magnitude.", Kind::sign},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD).", Kind::qsgd},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1).", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest.", Kind::fp4},
    {"none", "What is sent as it is.", Kind::random_k},
};

constexpr CompressionRow rows_of_moments[] = {
    {"sign", "Signs, and a scale (1-bit Adam): to owners of chunks, and from them.", Kind::sign},
    {"top-k", "The largest values by magnitude, with their places: all-gathered.", Kind::top_k},
    {"random-k", "Values at random places, the same on all workers: all-reduced.", Kind::random_k},
    {"qsgd", "Random roundings to a few levels of each bucket's norm (QSGD): all-gathered.", Kind::qsgd},
    {"int8", "Eight bits of each value, for uniform bins with their means (INTELLECT-1): all-gathered.", Kind::int8},
    {"fp4", "Four bits of each value, a sign and a power of two of its bucket's largest: all-gathered.", Kind::fp4},
    {"none", "The moment as it is: all-reduced.", Kind::random_k},
};

std::string_view why_not_of_averages(std::string_view name) {
  if (name == "dgc") return "must not be given here: it accumulates momentum of gradients, which local steps have had";
  if (name == "majority")
    return "must not be given here: a majority of signs has no length, and a difference between models has one";
  if (name == "powersgd" || name == "scalecom")
    return "must not be given here: its two exchanges, of which the second follows from the sum of the first, are "
           "those of sums of gradients alone";
  if (name == "sparse-rows")
    return "must not be given here: local steps with momentum or decay move rows that no token has touched";
  if (name == "one-bit")
    return "must not be given here: its means are of columns of gradients; \"sign\" is for differences";
  return {};
}

std::string_view why_not_of_moments(std::string_view name) {
  if (name == "dgc") return "must not be given here: it accumulates momentum, which a moment is already";
  if (name == "majority")
    return "must not be given here: a majority of signs has no length, and a step along a moment needs one";
  if (name == "powersgd" || name == "scalecom")
    return "must not be given here: its two exchanges, of which the second follows from the sum of the first, are "
           "those of sums of gradients alone";
  if (name == "sparse-rows")
    return "must not be given here: a moment keeps rows that no token of this step has touched";
  if (name == "one-bit")
    return "must not be given here: its means are of columns of gradients; \"sign\" is for moments";
  return {};
}

std::string_view why_not_of_messages(std::string_view name) {
  if (name == "powersgd")
    return "must not be given here: its second factor follows from the sum of all workers' first ones, which a message "
           "does not wait for";
  if (name == "scalecom")
    return "must not be given here: all send values at the places of one of them, which a message does not wait for";
  if (name == "majority")
    return "must not be given here: a majority is that of all workers, and each message counts by itself";
  if (name == "dgc")
    return "must not be given here: its ratio and momentum are those of steps that all take together; \"top-k\" has a "
           "residual alone";
  if (name == "sparse-rows")
    return "must not be given here: how long its packets are follows from what is computed, which messages do not wait "
           "for";
  if (name == "one-bit")
    return "must not be given here: its means are of columns of gradients; \"sign\" is for messages";
  return {};
}

}  // namespace

std::span<const CompressionRow> compressions_of(Compresses what) {
  switch (what) {
    case Compresses::nothing:
      return {};
    case Compresses::gradients:
      return rows_of_gradients;
    case Compresses::averages:
    case Compresses::averages_under_way:
      return rows_of_averages;
    case Compresses::moments:
      return rows_of_moments;
    case Compresses::messages:
      return rows_of_messages;
  }
  return {};
}

std::string_view why_not(Compresses what, std::string_view name) {
  switch (what) {
    case Compresses::nothing:
    case Compresses::gradients:
      return {};
    case Compresses::averages:
    case Compresses::averages_under_way:
      return why_not_of_averages(name);
    case Compresses::moments:
      return why_not_of_moments(name);
    case Compresses::messages:
      return why_not_of_messages(name);
  }
  return {};
}

}  // namespace syncopate
