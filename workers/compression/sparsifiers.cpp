// Sparsifiers, which send a share of the values: top-k, Deep Gradient Compression, random-k, ScaleCom, and the rows of
// embeddings that a step's tokens have touched.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/compression/kinds.hpp"
#include "workers/training/flat_arithmetic.hpp"

namespace syncopate {

namespace {

// The share of the values that a step sends.
struct Ratio {
  double last = 0;
  std::vector<double> warmup{};  // ratios of the first steps; each applies to an equal number of steps
  Step warmup_steps{};           // total number of warm-up steps

  double at(Step step) const {
    if (step >= warmup_steps || warmup.empty()) return last;
    return warmup[static_cast<std::size_t>(step.value() * std::ssize(warmup) / warmup_steps.value())];
  }
  std::size_t kept(Step step, std::size_t size) const {
    // 1e-9 corrects products that rounding has left just below a whole number.
    const auto kept = static_cast<std::size_t>(at(step) * static_cast<double>(size) + 1e-9);
    return std::min(size, std::max<std::size_t>(1, kept));
  }
  // The first step of each ratio. Ratios that apply to no step are left out.
  std::vector<Step> changes() const {
    std::vector<Step> changes;
    const std::int64_t ratios = std::ssize(warmup), steps = warmup_steps.value();
    const auto first_of = [&](std::int64_t i) { return Step{(i * steps + ratios - 1) / ratios}; };  // as in at()
    for (std::int64_t i = 0; i < ratios; ++i)
      if (first_of(i) < first_of(i + 1)) changes.push_back(first_of(i));
    changes.push_back(warmup_steps);
    return changes;
  }
};

// All warm-up ratios together apply to the first warmup_steps steps; by default each applies to one epoch.
void read_warmup(CompressionKeys& keys, Ratio& ratio) {
  auto& [table, context, options, why_no_estimates] = keys;
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const Range share{.low = 0, .high = 1, .low_open = true};
  ratio.warmup = table.numbers(
      {"warmup_ratios", "Ratios of the first steps, each for an equal number of steps, before `ratio` applies."}, share,
      std::vector<double>{});
  const auto epochs = table.optional_number(
      {"warmup_epochs", "Length of the whole warm-up.", "epochs", "one each, with a data set"}, Range::positive());
  const auto steps = table.optional_integer(
      {"warmup_steps", "Length of the whole warm-up, instead of warmup_epochs.", "steps", "by epochs"}, 1, most);
  if (ratio.warmup.empty()) {
    keys.leave_out_unwritten({"warmup_ratios"});
    for (const char* key : {"warmup_epochs", "warmup_steps"})
      if (table.has(key)) table.fault(key, "has no effect without warmup_ratios");
    return;
  }
  if (epochs && steps) table.fault("warmup_steps", "must not be given together with warmup_epochs");
  if (epochs && !context.has_epochs) table.fault("warmup_epochs", "needs a data set; without one, use warmup_steps");
  if (!epochs && !steps && !context.has_epochs)
    table.fault("warmup_ratios", "needs warmup_steps: without a data set an epoch has no length");
  const auto of_each = static_cast<double>(ratio.warmup.size());
  ratio.warmup_steps = steps.value_or(0);
  if (!steps && context.steps_per_epoch)
    ratio.warmup_steps = std::llround(epochs.value_or(of_each) * static_cast<double>(context.steps_per_epoch->value()));
  options.warmup_steps = ratio.warmup_steps;
}

Ratio read_ratio(CompressionKeys& keys) {
  Ratio ratio;
  ratio.last = keys.table.number({"ratio", "Share of the values that is sent (at least one value)."},
                                 Range{.low = 0, .high = 1, .low_open = true});
  if (keys.context.compresses == Compresses::gradients) read_warmup(keys, ratio);
  return ratio;
}

// Top-k: the largest values of a gradient, with their indices.
// Source:  Aji and Heafield 2017, "Sparse Communication for Distributed Gradient Descent"; Stich, Cordonnier, Jaggi
//          2018, "Sparsified SGD with Memory".
// Cost:    all-gather of 8 bytes (index and value) per value kept.
// Differs: selects from the whole model unless `scope` says otherwise; ties go to the lowest index.
class TopK : public PartByPart {
 public:
  TopK(const Ratio& ratio, const CompressorInput& input) : PartByPart(input), ratio_(ratio) {}

  std::vector<Step> changes() const override { return ratio_.changes(); }

 protected:
  std::size_t words(const Part& part, Step step) const override { return 2 * ratio_.kept(step, part.size); }

  // Writes the indices, then the values.
  void encode_part(const Part& part, Rank, Step step, std::span<float> p, float* packet) const override {
    const std::size_t kept = ratio_.kept(step, part.size);
    for (const std::uint32_t place : largest_magnitudes(p, kept)) {
      *packet = std::bit_cast<float>(static_cast<std::uint32_t>(part.offset) + place);
      packet[kept] = std::exchange(p[place], 0.0f);
      ++packet;
    }
  }

  void decode_part(const Part& part, const Received& received, std::size_t begin, std::span<float> sum) const override {
    const std::size_t kept = ratio_.kept(received.step, part.size);
    for (const float* const packet : received.packets)
      for (std::size_t i = begin; i < begin + kept; ++i)
        sum[std::bit_cast<std::uint32_t>(packet[i]) - part.offset] += packet[kept + i];
  }

  Ratio ratio_;
};

// Top-k with momentum correction: u = m u + g and p = p + u. The largest values of p are sent; with masking u becomes 0
// at their indices. The optimizer steps along the mean of the sent values, and needs no momentum of its own.
// Source:  Lin, Han, Mao, Wang, Dally 2018, "Deep Gradient Compression"; their code.
// Cost:    as top-k; with `dense_vectors` an all-reduce of the tensors of one dimension precedes it.
// Differs: exact top-k of the whole model unless `scope` says otherwise; their code selects by a sampled threshold in
//          each tensor. Tensors of one dimension take part in the selection. With `dense_vectors`, as in their code,
//          all of their u is sent, so that their mean has momentum as if the optimizer had it. The ratio applies from
//          the first step unless `warmup_ratios` gives others. Their code warms up over 0.316, 0.1, 0.0316, 0.01 and
//          0.00316 to 0.001, one epoch each; its page over 0.25, 0.063, 0.015 and 0.004. With `nesterov`, as in their
//          code, u = m (u + g) and p = p + u + g. Their recipes choose one of the two forms; here the plain form is the
//          default. `clip` bounds a worker's mean gradient before it is accumulated: its norm or, as in their code, the
//          norm of each tensor, or each value. It is off by default, here and in their code. That the paper multiplies
//          its bound by N^(-1/2) (`clip_scaling`) is from memory, not established. A gradient that is folded in is
//          clipped separately.
// Checks:  a golden recursion; ratio 1 without masking is momentum SGD, with `nesterov` Nesterov's.
struct DgcOptions {
  enum class ClippedBy { norm, tensor_norm, value };

  Ratio ratio{};
  bool by_tensors = false;
  double momentum = 0.9;         // m
  bool nesterov = false;         // u = m (u + g)
  bool masking = true;           // sending a value sets its u to 0
  std::optional<double> clip{};  // bound of a worker's mean gradient; empty: no clipping
  ClippedBy clipped_by = ClippedBy::norm;
  bool clip_by_workers = false;  // the bound is divided by the root of the number of workers
  bool dense_vectors = false;    // tensors of one dimension are sent whole
  std::string written{};         // position and text of the key `dense_vectors`; only a model can show it to be wrong
};

class DeepGradientCompression : public TopK {
 public:
  DeepGradientCompression(const DgcOptions& own, const CompressorInput& input)
      : TopK(own.ratio, input), own_(own), clipped_(std::exchange(parts_, {})), bound_(own.clip.value_or(0)) {
    if (own.clip_by_workers) bound_ /= std::sqrt(input.workers);
    for (const Part& part : clipped_) (own.dense_vectors && part.rows == 0 ? dense_ : parts_).push_back(part);
    if (own.clipped_by == DgcOptions::ClippedBy::norm)
      clipped_ = {{.offset = 0, .size = clipped_.back().offset + clipped_.back().size}};
    if (parts_.empty())
      throw RunFailure(own.written + "; must be false: the model has no matrix, so nothing would be compressed");
    if (!own.by_tensors) {  // matrices come first, without gaps (Objective)
      const std::size_t begin = parts_.front().offset, end = parts_.back().offset + parts_.back().size;
      parts_ = {{.offset = begin, .size = end - begin}};
    }
    for (const Part& part : dense_) dense_words_ += part.size;
  }

  std::vector<Exchange> exchanges(Step step) const override {
    std::vector<Exchange> exchanges = PartByPart::exchanges(step);
    if (!dense_.empty()) exchanges.insert(exchanges.begin(), {Operation::all_reduce, bytes_of_words(dense_words_)});
    return exchanges;
  }
  // The memory is p, followed by u.
  std::size_t vectors() const override { return 2; }
  bool clips() const override { return own_.clip.has_value(); }

  // Values or norms that are NaN are not clipped.
  void clip(std::span<float> gradient, std::int64_t micro_batches) const override {
    const double bound = bound_ * static_cast<double>(micro_batches);
    if (own_.clipped_by == DgcOptions::ClippedBy::value) {
      const auto most = static_cast<float>(bound);
      for (float& value : gradient)
        if (std::abs(value) > most) value = std::copysign(most, value);
      return;
    }
    for (const Part& part : clipped_) {
      const double norm = std::sqrt(sum_of_squares(gradient.data() + part.offset, part.size));
      if (norm > bound) scale(gradient.data() + part.offset, static_cast<float>(bound / norm), part.size);
    }
  }

  void accumulate(std::span<const float> gradient, std::size_t at, float, std::span<float> memory) const override {
    const auto momentum = static_cast<float>(own_.momentum);
    float* const p = memory.data() + at;
    float* const u = p + memory.size() / 2;
    if (own_.nesterov)
      for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += (u[i] = momentum * (u[i] + gradient[i])) + gradient[i];
    else
      for (std::size_t i = 0; i < gradient.size(); ++i) p[i] += u[i] = momentum * u[i] + gradient[i];
  }

  // In this step the worker has already accumulated a gradient of zeros, which has multiplied u by the momentum.
  void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const override {
    float* const p = memory.data() + at;
    float* const u = p + memory.size() / 2;
    const auto of_velocity = own_.nesterov ? static_cast<float>(own_.momentum) : 1.0f;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      p[i] += own_.nesterov ? of_velocity * gradient[i] + gradient[i] : gradient[i];
      u[i] += of_velocity * gradient[i];
    }
  }

  void encode(Rank, Step step, const float*, std::span<float> memory, float* packet) const override {
    if (dense_.empty()) return encode_second(step, nullptr, memory, packet);
    for (const Part& part : dense_) {
      const std::span<float> p = memory.subspan(part.offset, part.size);
      packet = std::ranges::copy(p, packet).out;
      std::ranges::fill(p, 0.0f);
    }
  }

  // Writes the packet of the largest values: the second packet, or the only one if no tensor is dense.
  void encode_second(Step step, const float*, std::span<float> memory, float* packet) const override {
    const std::span<float> p = memory.first(memory.size() / 2), velocity = memory.last(memory.size() / 2);
    TopK::encode({}, step, nullptr, p, packet);
    if (!own_.masking) return;
    for (const Part& part : parts_) {
      const std::size_t kept = ratio_.kept(step, part.size);
      for (std::size_t i = 0; i < kept; ++i) velocity[std::bit_cast<std::uint32_t>(packet[i])] = 0;
      packet += 2 * kept;
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    TopK::decode(received, sum);
    copy_parts(received.between, dense_, sum);
  }

 private:
  DgcOptions own_;
  std::vector<Part> clipped_;  // parts that are clipped separately
  double bound_ = 0;           // bound of each part's norm, or of each value
  std::vector<Part> dense_;
  std::size_t dense_words_ = 0;
};

void read_clip(CompressionKeys& keys, DgcOptions& own) {
  Settings& table = keys.table;
  using By = DgcOptions::ClippedBy;
  own.clip = table.optional_number(
      {"clip", "Bound to which a worker's mean gradient is clipped before it is accumulated.", "", "it is not clipped"},
      Range{.low = 0, .low_open = true, .high_open = true});
  if (!own.clip)
    for (const char* key : {"clip_by", "clip_scaling"})
      if (table.has(key)) table.fault(key, "has no effect without `clip`");
  own.clipped_by = table.choice(
      {"clip_by", "The quantity that `clip` bounds: the gradient's norm, each tensor's norm, or each value."},
      {{"norm", By::norm}, {"tensor-norm", By::tensor_norm}, {"value", By::value}}, own.clipped_by);
  own.clip_by_workers = table.choice({"clip_scaling", "The factor of `clip`: none, or 1 / sqrt(N) with N workers."},
                                     {{"none", false}, {"1/sqrt(N)", true}}, own.clip_by_workers);
  keys.leave_out_unwritten({"clip_by", "clip_scaling"});
}

// Random-k: values at random indices, the same on all workers. Without error feedback values are multiplied by 1 /
// ratio, so that their expectation is right.
// Source:  Stich, Cordonnier, Jaggi 2018, "Sparsified SGD with Memory".
// Cost:    all-reduce of 4 bytes per value kept. All workers draw the indices, so indices are not sent.
// Differs: indices are drawn without replacement from a separate random stream.
class RandomK : public Compressor {
 public:
  RandomK(const Ratio& ratio, const CompressorInput& input)
      : Compressor(input), ratio_(ratio), size_(input.parts.front().size) {}

  std::vector<Step> changes() const override { return ratio_.changes(); }

  std::vector<Exchange> exchanges(Step step) const override {
    return {{Operation::all_reduce, bytes_of_words(kept(step))}};
  }

  void encode(Rank, Step step, const float*, std::span<float> p, float* packet) const override {
    const float scale =
        options_.error_feedback ? 1 : static_cast<float>(static_cast<double>(size_) / static_cast<double>(kept(step)));
    for (const std::uint32_t place : places(step)) *packet++ = scale * std::exchange(p[place], 0.0f);
  }

  void decode(const Received& received, std::span<float> sum) const override {
    const float* value = received.packets.front();
    for (const std::uint32_t place : places(received.step)) sum[place] = *value++;
  }

 private:
  std::size_t kept(Step step) const { return ratio_.kept(step, size_); }

  // Floyd's algorithm for drawing without replacement, with one bit per index.
  std::vector<std::uint32_t> places(Step step) const {
    std::vector<double> uniform(kept(step));
    RandomStream{.seed = seed_, .purpose = Purpose::compression, .stream = 0, .worker = {}, .step = step}.fill_uniform(
        0, uniform);
    std::vector<bool> is_drawn(size_);
    std::vector<std::uint32_t> places;
    places.reserve(uniform.size());
    for (std::size_t i = 0; i < uniform.size(); ++i) {
      const std::size_t top = size_ - uniform.size() + i;
      const std::size_t drawn = std::min(top, static_cast<std::size_t>(uniform[i] * static_cast<double>(top + 1)));
      const std::size_t place = is_drawn[drawn] ? top : drawn;
      is_drawn[place] = true;
      places.push_back(static_cast<std::uint32_t>(place));
    }
    return places;
  }

  Ratio ratio_;
  std::size_t size_;
};

// ScaleCom: at each step all workers send their values at the indices where the values of one worker, the leader, are
// largest. The next step has another leader. So packets can be added up, and the sum is as long as a packet.
// Source:  Chen et al. 2020, "ScaleCom: Scalable Sparsified Gradient Compression for Communication-Efficient
//          Distributed Training", from descriptions and code of third parties.
// Cost:    a broadcast of k indices and then an all-reduce of k values: 4 bytes each.
// Differs: the leader is worker (step mod N) and selects by its p = e + g, residual + gradient. With `filter` = beta,
//          the low-pass filter, e' = (1 - beta) e + beta (p - sent). So (1 - beta) e remains at sent values. The
//          paper's beta, and whether it leaves first layers dense, is not established. The default is 1, plain error
//          feedback, for all layers. Workers wait for a late leader as for others. Ties go to the lowest index.
// Checks:  sum of sent values = sum of gradients + (first residual - last) / beta.
struct ScaleComOptions {
  Ratio ratio{};
  double filter = 1;  // beta: share of a step's unsent rest that is added to the residual
};

class ScaleCom : public Compressor {
 public:
  ScaleCom(const ScaleComOptions& own, const CompressorInput& input)
      : Compressor(input), own_(own), parts_(input.parts), workers_(input.workers) {}

  std::vector<Step> changes() const override { return own_.ratio.changes(); }

  std::vector<Exchange> exchanges(Step step) const override {
    const Bytes packet = bytes_of_words(kept(step));
    return {{Operation::broadcast, packet}, {Operation::all_reduce, packet}};
  }
  // With a filter the memory is e, followed by p; otherwise it is p alone.
  std::size_t vectors() const override { return is_filtered() ? 2 : 1; }
  Rank root(Step step) const override { return Rank{static_cast<int>(step.value() % workers_)}; }

  // p = e + g, and e = e + beta g. Encoding then subtracts beta times the sent values.
  void accumulate(std::span<const float> gradient, std::size_t at, float of_memory,
                  std::span<float> memory) const override {
    if (!is_filtered()) return Compressor::accumulate(gradient, at, of_memory, memory);
    const auto beta = static_cast<float>(own_.filter);
    float* const e = memory.data() + at;
    float* const p = e + memory.size() / 2;
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      p[i] = of_memory * e[i] + gradient[i];
      e[i] = of_memory * e[i] + beta * gradient[i];
    }
  }

  // As if the step had included the gradient and sent none of it.
  void fold(std::span<const float> gradient, std::size_t at, std::span<float> memory) const override {
    const auto beta = static_cast<float>(own_.filter);
    for (std::size_t i = 0; i < gradient.size(); ++i) memory[at + i] += beta * gradient[i];
  }

  void encode(Rank, Step step, const float*, std::span<float> memory, float* packet) const override {
    const std::span<float> p = memory.last(memory.size() / vectors());
    for (const Part& part : parts_)
      for (const std::uint32_t place :
           largest_magnitudes(p.subspan(part.offset, part.size), own_.ratio.kept(step, part.size)))
        *packet++ = std::bit_cast<float>(static_cast<std::uint32_t>(part.offset) + place);
  }

  void encode_second(Step step, const float* places, std::span<float> memory, float* packet) const override {
    const auto beta = static_cast<float>(own_.filter);
    const std::span<float> p = memory.last(memory.size() / vectors());
    for (std::size_t i = 0; i < kept(step); ++i) {
      const auto place = std::bit_cast<std::uint32_t>(places[i]);
      packet[i] = p[place];
      if (is_filtered())
        memory[place] -= beta * p[place];
      else
        p[place] = 0;
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    for (std::size_t i = 0; i < kept(received.step); ++i)
      sum[std::bit_cast<std::uint32_t>(received.between[i])] = received.packets.front()[i];
  }

 private:
  bool is_filtered() const { return own_.filter < 1; }
  std::size_t kept(Step step) const {
    std::size_t kept = 0;
    for (const Part& part : parts_) kept += own_.ratio.kept(step, part.size);
    return kept;
  }

  ScaleComOptions own_;
  std::vector<Part> parts_;
  int workers_;
};

}  // namespace

void read_top_k(CompressionKeys& keys) {
  const Ratio ratio = read_ratio(keys);
  keys.by_tensors();
  keys.residual();
  keys.options.make = maker_of<TopK>(ratio);
}

void read_dgc(CompressionKeys& keys) {
  auto& [table, context, options, why_no_estimates] = keys;
  DgcOptions own{.ratio = read_ratio(keys), .by_tensors = keys.by_tensors()};
  own.momentum = table.number(
      {"momentum", "Momentum of the velocity that each worker accumulates; the optimizer needs no momentum."},
      Range{.low = 0, .high = 1, .high_open = true}, own.momentum);
  own.nesterov = table.flag({"nesterov", "Whether the velocity is Nesterov's."}, own.nesterov);
  own.masking = table.flag({"masking", "Whether sending a value resets its velocity."}, own.masking);
  keys.leave_out_unwritten({"nesterov"});
  read_clip(keys, own);
  own.dense_vectors =
      table.flag({"dense_vectors",
                  "Whether one-dimensional tensors are sent whole; their mean over the workers then has momentum."},
                 own.dense_vectors);
  own.written = table.written("dense_vectors");
  keys.dropped();
  const bool clips_tensors = own.clip && own.clipped_by == DgcOptions::ClippedBy::tensor_norm;
  options.needs_tensors = options.needs_tensors || own.dense_vectors || clips_tensors;
  options.make = maker_of<DeepGradientCompression>(own);
}

void read_random_k(CompressionKeys& keys) {
  const Ratio ratio = read_ratio(keys);
  keys.residual();
  keys.options.make = maker_of<RandomK>(ratio);
}

void read_scalecom(CompressionKeys& keys) {
  ScaleComOptions own{.ratio = read_ratio(keys)};
  keys.by_tensors();
  keys.residual();
  if (keys.options.error_feedback)
    own.filter = keys.table.number(
        {"filter", "Share (beta) of a step's unsent rest that is added to the residual; 1: all of it."},
        Range{.low = 0, .high = 1, .low_open = true}, own.filter);
  keys.refuse_estimates(own.filter < 1, "filter", "must be 1 with feedback = \"ef21\", which has no residual");
  keys.options.make = maker_of<ScaleCom>(own);
}

namespace {

struct RowOptions {
  std::vector<std::string> tables{};  // parts of the names of matrices whose rows are sent
  std::string written{};              // position and text of the key `tables`; only a model can show that it is wrong

  bool have(const Part& tensor) const {
    const auto contains = [&](const std::string& name) { return tensor.name.find(name) != std::string::npos; };
    return tensor.rows > 0 && std::ranges::any_of(tables, contains);
  }
  // Returns the text of a fault if the model has no such matrix; empty if it has one.
  std::string why_none(const std::vector<Part>& tensors) const {
    if (std::ranges::any_of(tensors, [&](const Part& tensor) { return have(tensor); })) return "";
    std::string matrices;
    for (const Part& tensor : tensors)
      if (tensor.rows > 0) matrices += fmt::format("{}\"{}\"", matrices.empty() ? "" : ", ", tensor.name);
    return "must contain a part of the name of a matrix of the model: " + (matrices.empty() ? "it has none" : matrices);
  }
};

// Sends gradients of embeddings as the rows that a step's tokens have touched, with their indices. All other parameters
// are summed densely.
// Source:  indexed slices in Horovod, which all-gathers them unless it is set to make them dense.
// Cost:    all-reduce of 4 bytes per parameter outside the tables; all-gather of 4 (c + 1) bytes for each row of c
//          values that is not all zeros, plus 4 bytes. With N workers a table's rows take fewer bytes than its dense
//          sum if fewer than about 2 / N of them are touched.
// Differs: Horovod sends indices, of 8 bytes, separately from values, and repeats rows that a worker has several times.
//          Here a worker's micro-batches are added up first. Only the transport of gradients changes. Unlike an
//          optimizer for sparse gradients, the step also applies moments and decay to untouched rows. A table whose
//          rows are all touched, such as one tied to an output layer, is sent whole, with indices.
// Checks:  equals the dense sum up to the order of additions, for any optimizer; the bytes follow from each worker's
//          rows.
class SparseRows : public Compressor {
 public:
  SparseRows(const RowOptions& own, const CompressorInput& input) : Compressor(input) {
    if (const std::string why = own.why_none(input.parts); !why.empty())
      throw RunFailure(fmt::format("{}; {}", own.written, why));
    std::size_t dense = 0, most = 1;
    for (const Part& part : input.parts) {
      const bool is_table = own.have(part);
      (is_table ? tables_ : dense_).push_back(part);
      (is_table ? most : dense) += part.size + (is_table ? part.rows : 0);
    }
    exchanges_ = {{Operation::all_reduce, bytes_of_words(dense)}, {Operation::all_gather, bytes_of_words(most)}};
  }

  void encode(Rank, Step, const float*, std::span<float> p, float* packet) const override {
    for (const Part& part : dense_) packet = std::ranges::copy(p.subspan(part.offset, part.size), packet).out;
  }

  std::size_t second_words(std::span<const float> p) const override {
    std::size_t words = 1;
    for_touched_rows(p, [&](std::size_t, std::span<const float> values) { words += 1 + values.size(); });
    return words;
  }

  // Writes the number of rows, then for each row its first index and its values.
  void encode_second(Step, const float*, std::span<float> p, float* packet) const override {
    float* const count = packet++;
    std::uint32_t rows = 0;
    for_touched_rows(p, [&](std::size_t place, std::span<const float> values) {
      *packet++ = std::bit_cast<float>(static_cast<std::uint32_t>(place));
      packet = std::ranges::copy(values, packet).out;
      ++rows;
    });
    *count = std::bit_cast<float>(rows);
  }

  void decode(const Received& received, std::span<float> sum) const override {
    copy_parts(received.between, dense_, sum);
    for (const float* packet : received.packets) {
      const auto rows = std::bit_cast<std::uint32_t>(*packet++);
      for (std::uint32_t row = 0; row < rows; ++row) {
        const std::size_t place = std::bit_cast<std::uint32_t>(*packet++), columns = columns_at(place);
        for (std::size_t i = 0; i < columns; ++i) sum[place + i] += packet[i];
        packet += columns;
      }
    }
  }

 private:
  // Calls use(first index, values) for each row that is not all zeros.
  template <typename Use>
  void for_touched_rows(std::span<const float> p, const Use& use) const {
    for (const Part& table : tables_) {
      const std::size_t columns = table.size / table.rows;
      for (std::size_t row = 0; row < table.rows; ++row) {
        const std::size_t place = table.offset + row * columns;
        const std::span<const float> values = p.subspan(place, columns);
        if (std::ranges::any_of(values, [](float value) { return value != 0; })) use(place, values);  // NaN is not zero
      }
    }
  }

  std::size_t columns_at(std::size_t place) const {
    const auto table = std::ranges::find_if(tables_, [&](const Part& part) { return place < part.offset + part.size; });
    return table->size / table->rows;
  }

  std::vector<Part> tables_;
  std::vector<Part> dense_;
};

}  // namespace

void read_sparse_rows(CompressionKeys& keys) {
  auto& [table, context, options, why_no_estimates] = keys;
  RowOptions own;
  options.error_feedback = false;
  const bool gathers =
      table.choice({"exchange", "Whether embedding rows are gathered, or summed densely like all other parameters."},
                   {{"gather", true}, {"dense", false}}, true);
  own.tables =
      table.texts({"tables", "Parts of the names of embedding matrices; other tensors are summed uncompressed."},
                  std::vector<std::string>{"words.weight", "places.weight", "bag_of_words"});
  own.written = table.written("tables");
  if (own.tables.empty()) table.fault("tables", "must name at least one table");
  options.needs_tensors = options.follows_values = true;
  options.check = [own](Settings& method, const std::vector<Part>& tensors) {
    if (const std::string why = own.why_none(tensors); !own.tables.empty() && !why.empty())
      method.section({"compression"}).fault("tables", why);
  };
  if (gathers) options.make = maker_of<SparseRows>(own);
}

}  // namespace syncopate
