#include "tests/support/laws/matrix_laws.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"

namespace lockstep::test {
namespace {

using backend::Matrix;
using backend::Thin;
using backend::Vectors;
using Floats = std::vector<float>;

Floats reals(std::size_t count, std::uint64_t seed) {
  Floats values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = 2 * unit(philox(seed, i, 0).word[0]) - 1;
  return values;
}

/// Floats on the device.
class HeldFloats {
 public:
  HeldFloats(Vectors& vectors, const Floats& values)
      : vectors_(vectors),
        count_(values.size()),
        memory_(vectors.allocate(values.size() * sizeof(float), "a test")) {
    vectors.write(std::as_bytes(std::span(values)), memory_.get());
  }
  float* data() const { return reinterpret_cast<float*>(memory_.get()); }
  Floats read() const {
    Floats values(count_);
    vectors_.read(memory_.get(), std::as_writable_bytes(std::span(values)));
    return values;
  }

 private:
  Vectors& vectors_;
  std::size_t count_;
  backend::DeviceMemory memory_;
};

/// Panels of rows, rows one after the other, and outputs that lie next to each other.
constexpr nn::MatrixForm forms[] = {
    {.rows = 32, .columns = 37, .panel = 16, .panel_stride = 16 * 37, .column_stride = 16},
    {.rows = 24, .columns = 300, .panel = 8, .panel_stride = 8 * 300, .column_stride = 8},
    {.rows = 12, .columns = 5, .panel = 4, .panel_stride = 4 * 5, .column_stride = 4},
    {.rows = 10, .columns = 21, .panel = 1, .panel_stride = 21, .column_stride = 1},
    {.rows = 300, .columns = 19, .panel = 1, .panel_stride = 20, .column_stride = 1},
    {.rows = 23, .columns = 9, .panel = 23, .panel_stride = 0, .column_stride = 24},
    {.rows = 1, .columns = 1, .panel = 1, .panel_stride = 1, .column_stride = 1}};

/// What is wrong with `got`; `wanted` are sums of `terms` products of numbers up to 1.
std::string fault(const char* what, const Floats& got, const std::vector<double>& wanted,
                  std::size_t terms) {
  const double most = 1e-7 * (2 + std::sqrt(static_cast<double>(terms)) * 4);
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (!(std::abs(static_cast<double>(got[i]) - wanted[i]) <= most))
      return fmt::format("{}: number {} is {} instead of {}", what, i, got[i], wanted[i]);
  return {};
}

/// A matrix, vectors of both of its sides, and the products in double precision.
struct Problem {
  Problem(const nn::MatrixForm& of, std::size_t of_width)
      : form(of),
        width(of_width),
        matrix(reals(of.at(of.rows - 1, of.columns - 1) + 20, 1)),
        rows(reals(of.rows * width, 2)),
        columns(reals(of.columns * width, 3)) {}
  double at(std::size_t r, std::size_t c) const {
    return static_cast<double>(matrix[form.at(r, c)]);
  }
  std::vector<double> product() const {
    std::vector<double> sums(form.rows * width);
    each([&](std::size_t k, std::size_t r, std::size_t c) {
      sums[k * form.rows + r] += at(r, c) * static_cast<double>(columns[k * form.columns + c]);
    });
    return sums;
  }
  std::vector<double> transposed() const {
    std::vector<double> sums(form.columns * width);
    each([&](std::size_t k, std::size_t r, std::size_t c) {
      sums[k * form.columns + c] += at(r, c) * static_cast<double>(rows[k * form.rows + r]);
    });
    return sums;
  }
  std::vector<double> with_outer(double keep, double factor) const {
    std::vector<double> all(matrix.begin(), matrix.end());
    for (std::size_t r = 0; r < form.rows; ++r)
      for (std::size_t c = 0; c < form.columns; ++c) all[form.at(r, c)] *= keep;
    each([&](std::size_t k, std::size_t r, std::size_t c) {
      all[form.at(r, c)] += factor * static_cast<double>(rows[k * form.rows + r]) *
                            static_cast<double>(columns[k * form.columns + c]);
    });
    return all;
  }
  template <class Body>
  void each(const Body& body) const {
    for (std::size_t k = 0; k < width; ++k)
      for (std::size_t r = 0; r < form.rows; ++r)
        for (std::size_t c = 0; c < form.columns; ++c) body(k, r, c);
  }
  const nn::MatrixForm form;
  const std::size_t width;
  Floats matrix, rows, columns;
};

std::string fault_of(Vectors& vectors, const Problem& given) {
  const HeldFloats matrix(vectors, given.matrix), rows(vectors, given.rows),
      columns(vectors, given.columns), row_sums(vectors, Floats(given.rows.size(), NAN)),
      column_sums(vectors, Floats(given.columns.size(), NAN));
  const Matrix held{matrix.data(), given.form};
  const auto thin = [&](const HeldFloats& floats, std::size_t length) {
    return Thin{floats.data(), length, given.width};
  };
  const std::size_t height = given.form.rows, across = given.form.columns;
  vectors.multiply(held, thin(columns, across), thin(row_sums, height));
  vectors.multiply_transposed(held, thin(rows, height), thin(column_sums, across));
  std::string wrong = fault("a product", row_sums.read(), given.product(), across);
  if (wrong.empty())
    wrong = fault("a transposed product", column_sums.read(), given.transposed(), height);
  for (const float keep : {1.0f, 0.5f, 0.0f}) {
    Floats before = given.matrix;
    if (keep == 0) before[given.form.at(height - 1, across - 1)] = NAN;
    const HeldFloats sum(vectors, before);
    vectors.add_product(keep, -0.25f, thin(rows, height), thin(columns, across),
                        {sum.data(), given.form});
    if (wrong.empty())
      wrong = fault("a sum with a product", sum.read(),
                    given.with_outer(static_cast<double>(keep), -0.25), given.width);
  }
  return wrong;
}

double dot(const Floats& values, std::size_t length, std::size_t a, std::size_t b) {
  double sum = 0;
  for (std::size_t i = 0; i < length; ++i)
    sum +=
        static_cast<double>(values[a * length + i]) * static_cast<double>(values[b * length + i]);
  return sum;
}

std::string fault_of_orthogonality(const Floats& got, std::size_t length, std::size_t width) {
  for (std::size_t a = 0; a < width; ++a)
    for (std::size_t b = 0; b <= a; ++b) {
      const double wanted = a == b && a < length ? 1 : 0;
      if (!(std::abs(dot(got, length, a, b) - wanted) <= 2e-6))
        return fmt::format("vectors {} and {} of {} numbers have the product {}", a, b, length,
                           dot(got, length, a, b));
    }
  return {};
}

}  // namespace

std::string fault_of_products(Vectors& vectors) {
  for (const nn::MatrixForm& form : forms)
    for (std::size_t width = 1; width <= backend::most_width; ++width) {
      const std::string wrong = fault_of(vectors, {form, width});
      if (!wrong.empty())
        return fmt::format("{} x {} in panels of {}, {} vectors: {}", form.rows, form.columns,
                           form.panel, width, wrong);
    }
  const HeldFloats some(vectors, Floats(64, 1));
  const Matrix square{some.data(), {.rows = 4, .columns = 4, .panel_stride = 4}};
  const Thin four{some.data() + 16, 4, 2}, five{some.data() + 32, 5, 2}, wide{some.data(), 4, 9};
  for (const auto& [columns, product] :
       {std::pair(five, four), std::pair(four, five), std::pair(wide, wide)})
    try {
      vectors.multiply(square, columns, product);
      return "no error at shapes that do not fit";
    } catch (const Error& error) {
      if (std::string(error.what()).find("multiply: ") != 0) return error.what();
    }
  return {};
}

std::string fault_of_orthogonal_vectors(Vectors& vectors) {
  for (const std::size_t length : {1, 3, 8, 300, 2048})
    for (std::size_t width = 1; width <= backend::most_width; ++width) {
      Floats given = reals(length * width, 7);
      for (int kind = 0; kind < 3; ++kind) {
        // The last vector depends on the first; then it is nothing.
        for (std::size_t i = 0; kind > 0 && i < length; ++i)
          given[(width - 1) * length + i] = kind == 1 ? -3 * given[i] : 0;
        const HeldFloats held(vectors, given);
        vectors.orthogonalise({held.data(), length, width});
        const Floats got = held.read();
        const std::string wrong = fault_of_orthogonality(got, length, width);
        if (!wrong.empty()) return wrong;
        // The first keeps its direction.
        const double scale = static_cast<double>(given[0]) / static_cast<double>(got[0]);
        for (std::size_t i = 0; i < length && (kind == 0 || width > 1); ++i)
          if (!(std::abs(static_cast<double>(got[i]) * scale - static_cast<double>(given[i])) <=
                1e-5))
            return "the first vector has another direction";
      }
    }
  const HeldFloats bad(vectors, {1, NAN, 2, 1});
  vectors.orthogonalise({bad.data(), 2, 2});
  return std::isnan(bad.read()[0]) ? "" : "a NaN is lost among orthogonal vectors";
}

}  // namespace lockstep::test
