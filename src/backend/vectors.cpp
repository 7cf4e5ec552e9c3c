#include "lockstep/backend/vectors.hpp"

#include <fmt/core.h>

#include "lockstep/base/error.hpp"

namespace lockstep::backend {

void check_vector(const Vector& vector, const char* verb) {
  using comm::ElementType;
  const ElementType type = vector.type;
  check(type != ElementType::i32 && type != ElementType::i64,
        fmt::format("{}: a vector of 32-bit or 64-bit integers", verb));
  if (vector.count == 0) return;
  check(vector.data != nullptr,
        fmt::format("{}: there is no memory for {} values", verb, vector.count));
  check(type != ElementType::i8 || vector.scales != nullptr,
        fmt::format("{}: 8-bit values without scales", verb));
}

void check_vectors(const Vector& from, const Vector& to, const char* verb) {
  check_vector(from, verb);
  check_vector(to, verb);
  check(from.count == to.count, fmt::format("{}: {} values meet {}", verb, from.count, to.count));
}

void check_thin(const Thin& thin, const char* verb) {
  check(thin.data != nullptr && thin.length > 0 && thin.width > 0 && thin.width <= most_width,
        fmt::format("{}: {} vectors of {} numbers instead of 1 to {}", verb, thin.width,
                    thin.length, most_width));
}

void check_product(const Matrix& matrix, const Thin& rows, const Thin& columns, const char* verb) {
  check_thin(rows, verb);
  check_thin(columns, verb);
  const nn::MatrixForm& form = matrix.form;
  check(matrix.data != nullptr && form.rows == rows.length && form.columns == columns.length &&
            rows.width == columns.width,
        fmt::format("{}: {} x {} meets {} x {} of {} rows and {} columns", verb, rows.length,
                    rows.width, columns.length, columns.width, form.rows, form.columns));
}

}  // namespace lockstep::backend
