#include "workers/models/matrix_steps.hpp"

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

void iterate_power_by_torch(float* momentum, float* basis, float* direction, std::size_t rows, std::size_t columns,
                            std::size_t rank, double moved) {
  use_one_thread();
  const at::NoGradGuard no_grad;
  const auto matrix_at = [](float* values, std::size_t of_rows, std::size_t of_columns) {
    return at::from_blob(values, {static_cast<std::int64_t>(of_rows), static_cast<std::int64_t>(of_columns)});
  };
  const bool is_wide = columns > rows;
  const auto tall = [&](float* values) {
    const at::Tensor matrix = matrix_at(values, rows, columns);
    return is_wide ? matrix.t() : matrix;
  };
  constexpr double shortest = 1e-8;
  at::Tensor m = tall(momentum);
  const at::Tensor q = matrix_at(basis, is_wide ? rows : columns, rank);
  const at::Tensor p = std::get<0>(at::linalg_qr(at::mm(m, q)));
  const at::Tensor r = at::mm(m.t(), p);
  m.addmm_(p, r.t(), 1, -moved);
  q.copy_(r / (at::linalg_vector_norm(r, 2, 0) + shortest));
  tall(direction).copy_(at::mm(p, q.t()));
}

}  // namespace syncopate
