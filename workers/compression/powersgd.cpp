// PowerSGD, which sends two factors of each matrix.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "workers/base/process.hpp"
#include "workers/base/random.hpp"
#include "workers/compression/kernels.hpp"
#include "workers/compression/kinds.hpp"

namespace syncopate {

namespace {

// PowerSGD sends each matrix M as two factors. P is the orthogonalised sum of all workers' M Q, and Q is the sum of
// their M^T P. The step is along P Q^T, the projection of the mean gradient.
// Source:  Vogels, Karimireddy, Jaggi 2019, "PowerSGD: Practical Low-Rank Gradient Compression for Distributed
//          Optimization". Their package and their paper's code differ in the residual.
// Shapes:  M (n, m): a tensor's first dimension by the others; P (n, r); Q (m, r).
// Cost:    two consecutive all-reduces, of 4 r n and 4 r m bytes per matrix. The first one also carries, uncompressed,
//          tensors that are not matrices and matrices that the factors shrink by a factor of `least_rate` or less.
// Differs: both factors are sent at each step, as in the paper's code; the package alternates. There are no initial
//          steps without compression (100 in the package, 10 or 1000 in PyTorch's hook). A tensor that is sent whole
//          leaves no residual (in PyTorch's hook: the difference from the mean). The default of `removed` is "own", as
//          in the package. With "mean", as in the paper's code, the differences between workers' gradients and their
//          mean stay in the residuals. They cancel only in the sum over workers. The first factor of a step is not made
//          orthogonal, because it spans the same space. Columns of zeros in it are drawn at random.
struct PowerSgdOptions {
  int rank = 2;
  double least_rate = 2;      // matrices that shrink by this factor or less are sent whole
  bool warm_start = true;     // a step begins with the previous step's factor
  bool in_turn = false;       // a step computes only one of the two factors
  bool removes_mean = false;  // subtracts the mean of all workers' products from the residual; false: the worker's own
  std::string written{};      // position and text of the key `rank`; only a model can show that it is wrong
};

class PowerSgd : public Compressor {
 public:
  PowerSgd(const PowerSgdOptions& own, const CompressorInput& input) : Compressor(input), own_(own) {
    std::size_t left_words = 0;
    const auto r = static_cast<std::size_t>(own.rank);
    for (const Part& part : input.parts) {
      const std::size_t n = part.rows, m = n > 0 ? part.size / n : 0;
      const bool is_smaller =
          r <= std::min(n, m) && static_cast<double>(r * (n + m)) * own.least_rate < static_cast<double>(n * m);
      if (is_smaller) {
        factored_.push_back({{n, m, r}, part.offset, left_words, right_words_});
        left_words += r * n;
        right_words_ += r * m;
      } else {
        whole_.push_back({part, left_words});
        left_words += part.size;
      }
    }
    if (factored_.empty())
      throw RunFailure(
          fmt::format("{}; the model has no matrix that factors of rank {} shrink by more than a factor of {}",
                      own.written, own.rank, own.least_rate));
    exchanges_ = {{Operation::all_reduce, bytes_of_words(left_words)},
                  {Operation::all_reduce, bytes_of_words(right_words_)}};
  }

  bool follows_common() const override { return own_.warm_start; }
  bool corrects_residual() const override { return own_.removes_mean; }

  void encode(Rank, Step step, const float* common, std::span<float> p, float* packet) const override {
    std::vector<float> right(right_words_);
    begin_right(step, common, right);
    for (const Factored& matrix : factored_)
      write_left(matrix.shape, p.data() + matrix.offset, right.data() + matrix.right, packet + matrix.left);
    for (const auto& [part, at] : whole_) move_whole(part, p, packet + at);
  }

  void prepare(float* sum) const override {
    for (const Factored& matrix : factored_) orthogonalise(matrix.shape.n, matrix.shape.r, sum + matrix.left);
  }

  void encode_second(Step, const float* between, std::span<float> p, float* packet) const override {
    for (const Factored& matrix : factored_) {
      float* const own = p.data() + matrix.offset;
      write_right(matrix.shape, own, between + matrix.left, packet + matrix.right);
      if (!corrects_residual()) add_product(matrix.shape, -1, between + matrix.left, packet + matrix.right, own);
    }
  }

  void decode(const Received& received, std::span<float> sum) const override {
    add_products(received, 1, sum);
    for (const auto& [part, at] : whole_) std::copy_n(received.between + at, part.size, sum.data() + part.offset);
  }

  void correct(const Received& received, std::span<float> p) const override {
    add_products(received, -1 / static_cast<float>(received.workers), p);
  }

 protected:
  struct Factored {
    LowRank shape;
    std::size_t offset;  // index in the gradient
    std::size_t left;    // index in the first packet
    std::size_t right;   // index in the second packet
  };
  struct Whole {
    Part part;
    std::size_t at;  // index in the first packet
  };

  // Draws a column for a step, the same on all workers. `first` selects the random numbers.
  void draw(Step step, std::size_t first, std::span<float> column) const {
    const RandomStream stream{.seed = seed_, .purpose = Purpose::compression, .stream = 2, .worker = {}, .step = step};
    std::vector<double> drawn(column.size());
    fill_standard_normal(stream, static_cast<std::uint32_t>(first), drawn);
    std::ranges::transform(drawn, column.begin(), [](double value) { return static_cast<float>(value); });
  }

  static void move_whole(const Part& part, std::span<float> p, float* packet) {
    std::copy_n(p.data() + part.offset, part.size, packet);
    std::fill_n(p.data() + part.offset, part.size, 0.0f);
  }

  PowerSgdOptions own_;
  std::vector<Factored> factored_;
  std::vector<Whole> whole_;
  std::size_t right_words_ = 0;

 private:
  // Writes the previous step's factor, or draws one. Gradients that are zero or of smaller rank leave columns of zeros
  // in it, which would stay zero for ever, so these columns are drawn, too.
  void begin_right(Step step, const float* last, std::span<float> right) const {
    if (last) std::copy_n(last, right.size(), right.data());
    for (const Factored& matrix : factored_)
      for (std::size_t column = 0; column < matrix.shape.r; ++column) {
        const std::size_t first = matrix.right + column * matrix.shape.m;
        const auto values = right.subspan(first, matrix.shape.m);
        if (last && std::ranges::any_of(values, [](float value) { return value != 0; })) continue;
        draw(step, first, values);
      }
  }

  virtual void add_products(const Received& received, float factor, std::span<float> to) const {
    for (const Factored& matrix : factored_)
      add_product(matrix.shape, factor, received.between + matrix.left, received.packets.front() + matrix.right,
                  to.data() + matrix.offset);
  }
};

// PowerSGD with one factor per step. Even steps send M Q, where Q is the previous step's factor, made orthogonal; the
// step is along (M Q) Q^T, with M Q summed over workers. Odd steps send M^T P in the same way and go along P (M^T P)^T.
// Source:  the package of Vogels, Karimireddy, Jaggi 2019, "PowerSGD".
// Shapes:  M (n, m); P (n, r); Q (m, r).
// Cost:    one all-reduce, of 4 r n bytes per matrix at even steps and 4 r m at odd steps: half the bytes of both
//          factors on average. The packet also carries tensors that are sent whole. Every worker makes the factor
//          orthogonal, and so does the process that computes the sum.
// Differs: the step's number in the run decides whether the step is even. Which factor the package begins with is not
//          established; here it is P, with a random Q. The package's 100 initial steps without compression are left
//          out. Columns of zeros in a factor are drawn at random, as in PowerSGD.
// Checks:  a recursion in double precision; telescoping; full rank is exact for square matrices.
class PowerSgdInTurn : public PowerSgd {
 public:
  using PowerSgd::PowerSgd;

  std::vector<Exchange> exchanges(Step step) const override {
    if (sends_left(step)) return {exchanges_.front()};
    std::size_t words = right_words_;
    for (const Whole& whole : whole_) words += whole.part.size;
    return {{Operation::all_reduce, bytes_of_words(words)}};
  }

  bool follows_common() const override { return true; }

  void encode(Rank, Step step, const float* common, std::span<float> p, float* packet) const override {
    const std::vector<float> other = other_factor(step, common);
    for (const Factored& matrix : factored_) {
      float* const own = p.data() + matrix.offset;
      float* const sent = packet + place_of(matrix, step);
      const auto [left, right] = factors(matrix, step, sent, other);
      if (sends_left(step))
        write_left(matrix.shape, own, right, sent);
      else
        write_right(matrix.shape, own, left, sent);
      if (!corrects_residual()) add_product(matrix.shape, -1, left, right, own);
    }
    for_whole(step, [&](const Part& part, std::size_t at) { move_whole(part, p, packet + at); });
  }

  void decode(const Received& received, std::span<float> sum) const override {
    add_products(received, 1, sum);
    for_whole(received.step, [&](const Part& part, std::size_t at) {
      std::copy_n(received.packets.front() + at, part.size, sum.data() + part.offset);
    });
  }

 private:
  static bool sends_left(Step step) { return step.value() % 2 == 0; }

  // The index in a packet at which the sent factor begins.
  static std::size_t place_of(const Factored& matrix, Step step) {
    return sends_left(step) ? matrix.left : matrix.right;
  }

  // Returns P and Q of a matrix: one is the sent factor, the other comes from `other`.
  static std::pair<const float*, const float*> factors(const Factored& matrix, Step step, const float* sent,
                                                       const std::vector<float>& other) {
    if (sends_left(step)) return {sent, other.data() + matrix.right};
    return {other.data() + matrix.left, sent};
  }

  // The previous step's factor, made orthogonal, with the layout of the packet that carried it.
  std::vector<float> other_factor(Step step, const float* common) const {
    const bool is_right = sends_left(step);
    const auto size = static_cast<std::size_t>(exchanges_[is_right ? 1 : 0].packet.value()) / sizeof(float);
    std::vector<float> factor(size);
    if (common) std::copy_n(common, size, factor.data());
    std::vector<float> column, by_rows;
    for (const Factored& matrix : factored_) {
      const auto& [n, m, r] = matrix.shape;
      const std::size_t rows = is_right ? m : n, begin = is_right ? matrix.right : matrix.left;
      // P is stored row by row, Q column by column.
      const auto at = [&, r = r](std::size_t i, std::size_t c) {
        return begin + (is_right ? c * rows + i : i * r + c);
      };
      by_rows.resize(rows * r);
      for (std::size_t c = 0; c < r; ++c) {
        column.resize(rows);
        for (std::size_t i = 0; i < rows; ++i) column[i] = factor[at(i, c)];
        if (std::ranges::all_of(column, [](float value) { return value == 0; })) draw(step, begin + c * rows, column);
        for (std::size_t i = 0; i < rows; ++i) by_rows[i * r + c] = column[i];
      }
      orthogonalise(rows, r, by_rows.data());
      for (std::size_t c = 0; c < r; ++c)
        for (std::size_t i = 0; i < rows; ++i) factor[at(i, c)] = by_rows[i * r + c];
    }
    return factor;
  }

  void add_products(const Received& received, float factor, std::span<float> to) const override {
    const std::vector<float> other = other_factor(received.step, received.common);
    for (const Factored& matrix : factored_) {
      const float* const sent = received.packets.front() + place_of(matrix, received.step);
      const auto [left, right] = factors(matrix, received.step, sent, other);
      add_product(matrix.shape, factor, left, right, to.data() + matrix.offset);
    }
  }

  // Calls use(part, the index at which the part begins in a packet) for each part that is sent whole.
  template <typename Use>
  void for_whole(Step step, const Use& use) const {
    std::size_t behind_right = right_words_;
    for (const auto& [part, at] : whole_) {
      use(part, sends_left(step) ? at : behind_right);
      behind_right += part.size;
    }
  }
};

// The largest rank for which the factors of at least one matrix are smaller than the matrix by more than a factor of
// `least_rate`: r (n + m) least_rate < n m, as in PowerSgd. It is at most a matrix's smaller dimension, which is the
// only limit if the rate is 0. Returns 0 if there is no such rank.
int largest_rank(const std::vector<Part>& tensors, double least_rate) {
  std::size_t largest = 0;
  for (const Part& tensor : tensors) {
    if (tensor.rows == 0) continue;
    const std::size_t n = tensor.rows, m = tensor.size / n;
    const double bound = static_cast<double>(n * m) / (static_cast<double>(n + m) * least_rate);
    const double below = std::max(0.0, std::ceil(bound) - 1);
    largest = std::max(largest, static_cast<std::size_t>(std::min(below, static_cast<double>(std::min(n, m)))));
  }
  return static_cast<int>(largest);
}

void check_rank(Settings& method, const PowerSgdOptions& own, const std::vector<Part>& tensors) {
  const int largest = largest_rank(tensors, own.least_rate);
  if (own.rank <= largest) return;
  std::string problem = fmt::format(
      "the model has no matrix that factors of any rank shrink by more than a factor of {}", own.least_rate);
  if (largest > 0 && own.least_rate == 0)
    problem = fmt::format("must be at most {}: no matrix of the model has a higher rank", largest);
  else if (largest > 0)
    problem =
        fmt::format("must be at most {}: a higher rank shrinks no matrix of the model by more than a factor of {}",
                    largest, own.least_rate);
  method.section({"compression"}).fault("rank", problem);
}

}  // namespace

void read_powersgd(CompressionKeys& keys) {
  auto& [table, context, options, why_no_estimates] = keys;
  constexpr int most = 1024;
  PowerSgdOptions own;
  own.rank = static_cast<int>(table.integer({"rank", "Columns of each factor (r)."}, 1, most, own.rank));
  own.written = table.written("rank");
  own.least_rate = table.number(
      {"least_rate", "Matrices that their factors shrink by this factor or less are sent whole; 0: none is."},
      Range::at_least(0), own.least_rate);
  own.warm_start = table.flag({"warm_start", "Whether a step begins with the previous step's factor."}, true);
  own.in_turn = table.choice({"factors", "Whether a step computes both factors of a matrix, or one of them in turn."},
                             {{"both", false}, {"in-turn", true}}, own.in_turn);
  keys.leave_out_unwritten({"factors"});
  if (own.in_turn && !own.warm_start)
    table.fault("warm_start", "must be true: with factors = \"in-turn\" each step reuses the previous step's factor");
  keys.residual();
  if (options.error_feedback)
    own.removes_mean = table.choice(
        {"removed", "The product of factors that a worker subtracts from its residual: its own, or all workers' mean."},
        {{"own", false}, {"mean", true}}, own.removes_mean);
  keys.refuse_estimates(own.removes_mean, "removed",
                        "must be \"own\" with feedback = \"ef21\": an estimate is what its worker has sent");
  options.needs_tensors = true;
  options.check = [own](Settings& method, const std::vector<Part>& tensors) { check_rank(method, own, tensors); };
  options.make = maker_of<PowerSgd>(own);
  if (own.in_turn) options.make = maker_of<PowerSgdInTurn>(own);
}

}  // namespace syncopate
