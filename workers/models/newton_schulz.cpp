#include "workers/models/newton_schulz.hpp"

#include <ATen/ATen.h>

#include "workers/models/torch_objective.hpp"

namespace syncopate {

void orthogonalise_by_torch(float* matrix, std::size_t rows, std::size_t columns, NewtonSchulz iterations) {
  use_one_thread();
  const at::NoGradGuard no_grad;
  const at::Tensor g = at::from_blob(matrix, {static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)});
  at::Tensor x = (rows > columns ? g.t() : g) / (g.norm().item<double>() + 1e-7);
  at::Tensor next = at::empty_like(x);
  for (const auto& [a, b, c] : iterations) {
    const at::Tensor products = at::mm(x, x.t());
    const at::Tensor polynomial = at::addmm(products, products, products, b, c);
    at::addmm_out(next, x, polynomial, x, a, 1);
    std::swap(x, next);
  }
  g.copy_(rows > columns ? x.t() : x);
}

}  // namespace syncopate
