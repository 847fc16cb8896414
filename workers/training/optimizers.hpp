// Optimizers. A step is one pass over flat vectors, block by block, so that a block stays in the first-level cache.
// Every step is compared with torch::optim in tests/workers/optimizers_test.cpp.
// Shapes:  parameters, gradient, each moment: (P,) flat float32. Norms are those of tensors.
#pragma once

#include <array>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "workers/training/gradient.hpp"

namespace syncopate {

enum class DecayScope { weights, all };       // which parameters weight decay applies to
enum class DecayForm { coupled, decoupled };  // added to the gradient (L2), or subtracted from the parameters

struct WeightDecay {
  double rate = 0;
  DecayScope scope = DecayScope::weights;
  DecayForm form = DecayForm::coupled;
  std::vector<std::string> exclude{};  // tensors whose names contain one of these strings do not decay
};

// The tensors whose steps a layer-wise optimizer scales by a trust ratio: those that weight decay applies to, or all.
enum class TrustScope { decayed, all };

// The terms that the momentum accumulates. Both forms are equal until the learning rate changes; with `updates`, old
// gradients keep the rate of their own step.
enum class MomentumOf {
  gradients,  // as in PyTorch: v = mu v + g; theta -= lr v
  updates,    // as in TensorFlow and MLPerf: v = mu v + lr g; theta -= v
};

// Sums over a tensor that a layer-wise optimizer measures in one pass. Each optimizer defines which sums; most are sums
// of squares.
using TensorSums = std::array<double, 3>;
using PassSums = std::array<TensorSums, 2>;  // one entry per pass

struct StepContext {
  double learning_rate = 0;
  // The age of each moment, this step included.
  MomentAges ages = {MomentAge{.steps = 1}, MomentAge{.steps = 1}, MomentAge{.steps = 1}};
  double decay = 0;  // weight-decay rate of this block; 0: its parameters do not decay
  // The step does not change the second moment (beta1_of_frozen). Where the second moment is 0, the first becomes 0.
  bool keeps_second = false;
  // For layer-wise optimizers: whether this block's tensor is excluded from decay, and the sums of the passes done so
  // far over this tensor and over all tensors.
  bool excluded = false;
  const PassSums* tensor = nullptr;
  const PassSums* model = nullptr;
  // The shape of this block's tensor if the optimizer updates it as a matrix (Optimizer::matrices); 0: it does not.
  std::size_t rows = 0;
  std::size_t columns = 0;
};

// A block of the vectors. `before` and `after` may be the same memory, and so may the two pointers of each moment. A
// null moment means zeros.
struct OptimizerBlock {
  std::size_t size = 0;
  const float* gradient = nullptr;
  const float* before = nullptr;
  float* after = nullptr;
  const float* moments_before[most_moments] = {};
  float* moments_after[most_moments] = {};
  float* kept = nullptr;  // layer-wise: writable memory of the gradient, valid until the step's end
};

inline constexpr std::size_t longest_block = 2048;

// A tensor that an optimizer updates as a matrix, with writable memory, all stored by rows.
struct MatrixBlock {
  std::size_t rows = 0;
  std::size_t columns = 0;
  float* kept = nullptr;  // the gradient, into which the passes have written
  float* moments[most_moments] = {};
  std::size_t offset = 0;  // place of the tensor in the flat vector
  std::uint64_t seed = 0;  // the run's
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  virtual int moments() const = 0;  // the number of state vectors, at most most_moments
  // The factor by which each step multiplies each moment: the momentum, or beta1 and beta2.
  virtual std::vector<double> decays() const = 0;
  virtual void update(const OptimizerBlock& block, const StepContext& context) const = 0;
  virtual const WeightDecay& weight_decay() const = 0;
  // Returns beta1 if the optimizer supports steps that update the first moment and leave the second unchanged; nullopt
  // if not. Such an optimizer has neither bias correction nor coupled weight decay. Where the second moment is exactly
  // 0, this step only applies weight decay.
  virtual std::optional<double> beta1_of_frozen() const { return std::nullopt; }

  // For optimizers that step one model and evaluate another: f, where the evaluated model is the stepped model plus f
  // times the first moment. 0: the stepped model is evaluated.
  virtual double evaluated_factor() const { return 0; }
  // Returns the age of the first moment after a step with this learning rate. `ages` already include the step.
  virtual MomentAge weighed(const MomentAges& ages, double /*learning_rate*/) const { return ages[0]; }

  // The number of passes before `update` (at most 2) in which a layer-wise optimizer measures whole tensors. If there
  // are any, no block spans two tensors.
  virtual int passes() const { return 0; }
  // Returns this block's contribution to a pass's sums. May change moments and gradient (`kept`) for later passes.
  virtual TensorSums measure(int /*pass*/, const OptimizerBlock&, const StepContext&) const { return {}; }

  // Returns for each tensor whether it is updated as a whole matrix. Only for optimizers with passes.
  virtual std::vector<bool> matrices(std::span<const ParameterTensor> tensors) const {
    return std::vector<bool>(tensors.size());
  }
  // The user's strings: matrices whose names contain one of them are not updated as a whole.
  virtual std::vector<std::string> excluded_matrices() const { return {}; }
  // Called after the last pass, for each matrix that is updated as a whole. Replaces `kept`, which update() then gets
  // as the gradient.
  virtual void turn_matrix(const MatrixBlock&) const {}
};

// Returns the moment's values before the step. If there are none yet, these are zeros in block.moments_after.
const float* read_moment(const OptimizerBlock& block, std::size_t moment);

// The factories need options within these ranges, which the reader of [training.optimizer] ensures: momenta, betas, rho
// and mu_x in [0, 1); rates of weight decay, max_norm, ratio_min, mean_square_start and rate_power at least 0; epsilon
// above 0 (LARS: at least 0). All are finite, except ratio_max.
//
// v = mu v + g;  theta -= lr (v, or g + mu v with Nesterov). Equals torch::optim::SGD with dampening 0, and
// tf.keras.optimizers.SGD with MomentumOf::updates.
struct SgdOptions {
  double momentum = 0;
  MomentumOf momentum_of = MomentumOf::gradients;
  bool nesterov = false;  // needs a momentum above 0
  WeightDecay weight_decay{};
};
std::unique_ptr<Optimizer> make_sgd(const SgdOptions& options);

// Equals torch::optim::AdamW with decoupled weight decay, and torch::optim::Adam with coupled weight decay.
struct AdamWOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  bool corrects_bias = true;  // divide moments by 1 - beta^step
  WeightDecay weight_decay{.rate = 0.01, .scope = DecayScope::all, .form = DecayForm::decoupled};
};
std::unique_ptr<Optimizer> make_adamw(const AdamWOptions& options);

// LAMB: Adam whose step is scaled, tensor by tensor, to the tensor's own norm.
// Source:  You et al. 2020, "Large Batch Optimization for Deep Learning"; NVIDIA's variant, which DeepSpeed and
//          DropCompute's BERT-Large share.
//   g /= max(1, |g| / max_norm), |g| over all tensors;  m = b1 m + (1 - b1) g;  s = b2 s + (1 - b2) g^2
//   u = m / (1 - b1^t) / (sqrt(s / (1 - b2^t)) + epsilon) + wd theta;  theta -= lr |theta| / |u| u
// Cost:    two passes over the vectors and one for the global norm.
// Differs: as in NVIDIA's code, the ratio is 1 where a norm is 0 and for tensors that do not decay (norms and biases,
//          or all at a rate of 0); trust = all scales every tensor ("nvlamb"). A coupled decay (L2 mode) is added to g
//          before the moments. If averages_gradients is false, the factor (1 - b1) is replaced by 1. As in NVIDIA's
//          code, the ratio is not bounded; DropCompute's experimental variant limits it to 0.01 ... 10.
// Checks:  golden vectors; a reference in double precision over 50 steps of many tensors.
struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  bool averages_gradients = true;
  double max_norm = 1;  // norm over the gradients of all tensors; 0: no clipping
  TrustScope trust = TrustScope::decayed;
  double ratio_min = 0;
  double ratio_max = std::numeric_limits<double>::infinity();  // at least ratio_min
  WeightDecay weight_decay{.rate = 0.01, .form = DecayForm::decoupled};
};
std::unique_ptr<Optimizer> make_lamb(const LambOptions& options);

// LANS: LAMB that first normalises each tensor's gradient and takes a Nesterov-like step.
// Source:  Zheng et al. 2020, "Accelerated Large Batch Optimization of BERT Pretraining in 54 minutes"; the form that
//          DropCompute's 1.5B model uses.
//   h = g / (|g| + epsilon);  m = b1 m + (1 - b1) h;  s = b2 s + (1 - b2) h^2;  d = sqrt(s / (1 - b2^t)) + epsilon
//   r = m / (1 - b1^t) / d + wd theta;  c = h / d + wd theta
//   theta -= lr (b1 |theta| / |r| r + (1 - b1) |theta| / |c| c),  a ratio being 1 where a norm is 0
// Cost:    three passes over the vectors.
// Differs: the ratios scale all tensors, even those that do not decay; trust = decayed sets the ratio of tensors that
//          do not decay to 1. Clipping by the global norm beforehand is an option (off by default). Because gradients
//          are normalised, it has an effect only through epsilon.
// Checks:  golden vector; scaling the gradients changes nothing; a reference in double precision over 50 steps.
struct LansOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double max_norm = 0;  // norm over the gradients of all tensors; 0: no clipping
  TrustScope trust = TrustScope::all;
  WeightDecay weight_decay{.rate = 0.01, .form = DecayForm::decoupled};
};
std::unique_ptr<Optimizer> make_lans(const LansOptions& options);

// LARS: momentum SGD in which each tensor's step is proportional to the tensor's norm.
// Source:  You et al. 2017, "Large Batch Training of Convolutional Networks"; MLPerf's TensorFlow optimizer.
//   r = eta |theta| / (|g| + wd |theta| + epsilon), 1 where a norm is 0;  d = r (g + wd theta)
//   updates (default, MLPerf's):  v = mu v + lr d;  theta -= v
//   gradients:                    v = mu v + d;     theta -= lr v
// Cost:    one pass over the vectors for the norms, and one for the step.
// Differs: a tensor that does not decay has the ratio 1, as tensors on MLPerf's skip list (norms and biases); trust =
//          all scales it, too. MLPerf's setting epsilon = 0 means its backend's 1e-7. LARC's bound on r is not
//          implemented.
// Checks:  golden vectors; a reference in double precision over 50 steps of many tensors.
struct LarsOptions {
  double momentum = 0.9;
  MomentumOf momentum_of = MomentumOf::updates;
  double trust_coefficient = 0.001;  // eta; above 0
  double epsilon = 1e-7;
  TrustScope trust = TrustScope::decayed;
  WeightDecay weight_decay{.rate = 5e-5};  // coupled
};
std::unique_ptr<Optimizer> make_lars(const LarsOptions& options);

// RMSProp: divides each gradient by the root of a running mean of its squares; with momentum.
// Source:  the kernel of TensorFlow (ApplyRMSProp), as Chen et al. 2016 use it: decay 0.9, momentum 0.9, epsilon 1.0;
//          torch.optim.RMSprop. The momentum is never Nesterov's, and the mean square is not centred.
//   tensorflow (default):  ms = rho ms + (1 - rho) g^2;  v = mu v + lr g / sqrt(ms + epsilon);    theta -= v
//   pytorch:               ms = rho ms + (1 - rho) g^2;  v = mu v + g / (sqrt(ms) + epsilon);     theta -= lr v
// Shapes:  the moments are v and ms; without momentum only ms.
// Differs: ms starts at 1 in TensorFlow 1 and at 0 in Keras 2 and PyTorch. The stored moment always starts at 0,
//          because null moments are zeros. ms is the stored moment plus start x rho^t, which follows the same
//          recursion. If a state policy resets the stored moment, alone or with v, ms is `start` again.
// Checks:  golden vectors of all forms; torch::optim::RMSprop; with epsilon far above g^2 it equals momentum SGD.
enum class RmsPropForm { tensorflow, pytorch };

struct RmsPropOptions {
  RmsPropForm form = RmsPropForm::tensorflow;
  double rho = 0.9;  // factor of the old mean square in each step
  double momentum = 0.9;
  double epsilon = 1.0;
  double mean_square_start = 1;  // ms before the first step
  WeightDecay weight_decay{};    // coupled
};
std::unique_ptr<Optimizer> make_rmsprop(const RmsPropOptions& options);

// Newton-Schulz iterations replace a matrix G by one with the same singular vectors and singular values near 1. Each
// has three coefficients.
//   X = G / (|G| + 1e-7);  per iteration:  A = X X^T,  X <- a X + (b A + c A A) X.  G is transposed if it is tall.
using NewtonSchulz = std::span<const std::array<double, 3>>;
inline constexpr std::array<double, 3> jordan_iteration = {3.4445, -4.7750, 2.0315};
// From Jordan's code: singular values end between 0.68 and 1.13, unless they are below a hundredth of |G|.
inline constexpr std::array newton_schulz_of_jordan = {jordan_iteration, jordan_iteration, jordan_iteration,
                                                       jordan_iteration, jordan_iteration};
// From the code of Dion and MuLoCo: another polynomial in each iteration; singular values end between 0.98 and 1.03.
inline constexpr std::array<std::array<double, 3>, 5> newton_schulz_of_dion = {{{4.0848, -6.8946, 2.9270},
                                                                                {3.9505, -6.3029, 2.6377},
                                                                                {3.7418, -5.5913, 2.3037},
                                                                                {2.8769, -3.1427, 1.2046},
                                                                                {2.8366, -3.0525, 1.2012}}};

// Muon: momentum SGD that replaces the step of each weight matrix by a nearly orthogonal matrix O, so that all singular
// directions move alike. Other tensors are updated by AdamW.
// Source:  Jordan et al. 2024, "Muon: An optimizer for hidden layers in neural networks", and its code; Liu et al.
//          2025, "Muon is Scalable for LLM Training" (Moonlight); the code of Dion.
//   m = mu m + (1 - mu) g;  u = (1 - mu) g + mu m with Nesterov, else m;  O = Newton-Schulz(u)
//   theta = (1 - lr wd) theta - lr s O
// Shapes:  a filter counts as a matrix of (outputs, inputs x kernel). m: (P,) flat float32. AdamW's second moment also
//          has P elements, which stay zero for matrices.
// Cost:    per iteration 4 p^2 q + 2 p^3 floating-point operations for a p x q matrix, p <= q. Under MPI every rank
//          computes all matrices; the authors' code divides them and gathers the results.
// Differs: `rms_match` and `spectral` are other published scales. In Jordan's code, s is 1 for filters with square
//          kernels, because it divides the kernel's height by its width; here it uses the shape above. Products are in
//          single precision (bfloat16 in Jordan's code). AdamW corrects its bias, whatever the scale. decays() returns
//          AdamW's betas for matrices, too; DES-LOC computes half-lives of moments from them.
// Checks:  golden matrices; the polynomial of the singular values of LibTorch's SVD; a reference in double precision.
enum class MuonScale {
  jordan,     // s = sqrt(max(1, rows / columns))
  spectral,   // s = sqrt(rows / columns), as in the code of Dion and MuLoCo
  rms_match,  // s = 0.2 sqrt(max(rows, columns)): the size of AdamW's steps, as in Moonlight
};

struct MuonOptions {
  double momentum = 0.95;  // mu
  bool nesterov = true;
  MuonScale scale = MuonScale::jordan;
  enum class Iterations { jordan, dion } iterations = Iterations::jordan;
  bool all_matrices = false;          // false: without embeddings, the model's first matrix and its head
  std::vector<std::string> others{};  // matrices whose names contain one of these strings are updated by AdamW, too
  double adamw_rate = 0.015;          // AdamW's learning rate as a share of the schedule's; above 0
  double beta1 = 0.9;                 // of AdamW, as the next two
  double beta2 = 0.95;
  double epsilon = 1e-10;
  WeightDecay weight_decay{.rate = 0, .form = DecayForm::decoupled};
};
// Replaces a matrix, stored by rows, by the result of the iterations.
using Orthogonalise = void (*)(float* matrix, std::size_t rows, std::size_t columns, NewtonSchulz iterations);
std::unique_ptr<Optimizer> make_muon(const MuonOptions& options, Orthogonalise orthogonalise);

// Dion: momentum SGD that steps each weight matrix along an orthonormal matrix of low rank that approximates its
// momentum, found by one power iteration per step. Other tensors are updated by AdamW.
// Source:  Ahn, Xu et al. 2025, "Dion: Distributed Orthonormalized Updates" (arXiv 2504.05295), and its code.
//   M = M + g;  P = orthonormal columns of M Q (QR);  R = M^T P;  M = M - (1 - mu) P R^T
//   Q = R with columns of length 1;  theta = (1 - lr wd) theta - lr sqrt(rows / columns) P Q^T
// Shapes:  as for Muon. M: (P,), the first moment. Q: (smaller side, rank), stored by rows at the start of the matrix's
//          elements of the second moment, whose other elements are zero there. A wide matrix is treated transposed.
// Cost:    6 p q r + 4 p r^2 floating-point operations for a p x q matrix, p >= q, and rank r.
// Differs: the gradient is the average, as after an all-reduce. The authors' decoupled form, in which workers keep own
//          momenta and sum only P and R, takes the same steps up to rounding, but its fewer bytes are not modelled.
//          Q starts from counter-based streams, equally on all workers, and again after a policy has reset it. If the
//          momentum is zero, so is the step. Columns of R are divided by their length + 1e-8. If the momentum has a
//          lower rank than the step, as a linear classifier's has, the step's other directions are rounding errors.
// Checks:  an independent implementation, also of the decoupled form; ranks 1 to full.
struct DionOptions {
  double momentum = 0.95;     // mu
  double rank_share = 1;      // rank = ceil(this x smaller side); in (0, 1]
  bool all_matrices = false;  // this and the next members: as for Muon
  std::vector<std::string> others{};
  double adamw_rate = 1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double epsilon = 1e-8;
  WeightDecay weight_decay{.rate = 0.01, .form = DecayForm::decoupled};
};
// Changes M and Q by one iteration and writes P Q^T to `direction`; `moved` is 1 - mu. All are stored by rows.
using PowerIteration = void (*)(float* momentum, float* basis, float* direction, std::size_t rows, std::size_t columns,
                                std::size_t rank, double moved);
std::unique_ptr<Optimizer> make_dion(const DionOptions& options, PowerIteration iterate);

// Averaged iterates: gradients are taken at y, a base optimizer steps z along them, and x, the mean of z, is evaluated.
//   y = b x + (1 - b) z;   z' = z - lr (u + wd y);   x' = (1 - c) x + c z'
//   base      u:  sgd: g;   rms: g / (sqrt(v / (1 - b2^t)) + epsilon);   adamw: the same with m / (1 - b1^t) for g
// Source:  Schedule-Free: Defazio et al. 2024 (arXiv 2405.15682), and its code: bases sgd and rms, and
//          c = w_t / (w_1 + ... + w_t), w_t = t^r (largest rate so far)^p.  Generalized Primal Averaging (GPA): Defazio
//          et al. 2025 (arXiv 2512.17131), and its code: base adamw, a constant c = 1 - mu_x; b is mu_y.
// Shapes:  parameters y, gradient, d, v, m: (P,) flat float32. The first moment is d = z - y, so that a state without
//          moments has x = y = z. With it, x = y + (1 - 1 / b) d; the step is d' = (1 - c) (d - b lr (u + wd y)) and
//          y' = y + d - lr (u + wd y) - d'.   v is the second moment, m the third.
// Cost:    one pass. One weighted sum of two vectors per published model, for x.
// Differs: if a policy averages y and d, it averages x and z, too; if it resets d, the average begins again at y.
//          GPA's distributed code in MuLoCo averages only z. BatchNorm statistics are those of gradients at y, unless
//          they are recalibrated.
// Checks:  an independent implementation; at a constant rate x is the mean of z; mu_x = 0 is AdamW; with base sgd and
//          mu_y = 1 the steps are those of momentum SGD.
struct AveragedOptions {
  enum class Base { sgd, rms, adamw } base = Base::sgd;
  double share_of_x = 0.9;            // b: the share of x in y, in (0, 1]; without kept_of_x below 1
  std::optional<double> kept_of_x{};  // 1 - c (mu_x); none: Schedule-Free's weights
  double rate_power = 2;              // p
  double step_power = 0;              // r
  // Only for base rms ("paper"): lr is multiplied by sqrt(1 - b2^t), also in w_t, and v is not divided by 1 - b2^t.
  bool scales_rate = false;
  bool decays_at_z = false;  // wd z in place of wd y
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  WeightDecay weight_decay{.rate = 0, .scope = DecayScope::all, .form = DecayForm::decoupled};
};
std::unique_ptr<Optimizer> make_averaged(const AveragedOptions& options);

}  // namespace syncopate
