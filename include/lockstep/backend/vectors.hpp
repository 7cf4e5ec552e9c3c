#pragma once

// Arithmetic on a device's flat buffers, for exchanges: smaller forms of gradients, differences of
// weights, what is worth sending.
//
// Why vectors have no stream. They run in the compute stream. A network stream holds collectives
// alone, and on a CPU several of them advance at once, so arithmetic in it would come too early.

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "lockstep/backend/arithmetic.hpp"
#include "lockstep/comm/elements.hpp"
#include "lockstep/nn/arena.hpp"

namespace lockstep::backend {

/// Memory of a device, which its owner frees.
using DeviceMemory = std::unique_ptr<std::byte, std::function<void(std::byte*)>>;

/// Numbers in a device's memory: f32, f16, bf16, or i8 with scales. An i8 vector is cut into blocks
/// of arithmetic::scale_block values, the last one shorter; a value is its integer times its
/// block's scale. A block that holds an infinity or NaN becomes NaN as a whole.
struct Vector {
  void* data = nullptr;
  std::size_t count = 0;
  comm::ElementType type = comm::ElementType::f32;
  float* scales = nullptr;  ///< of i8: scales_of(count) floats on the device

  /// What a collective moves of it.
  comm::Elements elements() const { return {data, count, type}; }
};
inline Vector vector(float* data, std::size_t count) {
  return {data, count, comm::ElementType::f32, nullptr};
}
constexpr std::size_t scales_of(std::size_t count) {
  return (count + arithmetic::scale_block - 1) / arithmetic::scale_block;
}

/// A matrix of f32 in a device's memory.
struct Matrix {
  float* data = nullptr;
  nn::MatrixForm form = {};
};
/// A thin matrix of f32, 1 to most_width columns wide: `width` vectors of `length` numbers each,
/// one after the other.
struct Thin {
  float* data = nullptr;
  std::size_t length = 0, width = 0;
};
inline constexpr std::size_t most_width = 8;

/// Work goes to the device's compute stream, in order; a network stream holds collectives alone, so
/// an exchange orders the two with events. Each value is computed in float and rounded once, to the
/// nearest, ties to even; beyond the largest number of a format it becomes infinite. A NaN stays a
/// NaN, with bits that are not defined. The bits do not depend on the number of threads. Vectors of
/// one call have the same count and do not overlap, unless they are the same. Throws Error for
/// other types and counts. **Thread safety:** none; the main thread uses it.
class Vectors {
 public:
  virtual ~Vectors() = default;
  /// Zeroed. Throws Error naming `what` when there is not enough memory. What an exchange allocates
  /// is counted by reduce::exchange_bytes().
  virtual DeviceMemory allocate(std::size_t bytes, const std::string& what) = 0;
  /// To and from the host. They wait for the compute stream.
  virtual void read(const void* from, std::span<std::byte> to) = 0;
  virtual void write(std::span<const std::byte> from, void* to) = 0;

  virtual void cast(const Vector& from, const Vector& to) = 0;               ///< to = from
  virtual void add(float factor, const Vector& from, const Vector& to) = 0;  ///< to += factor from
  virtual void scale(float factor, const Vector& values) = 0;                ///< values *= factor
  /// *found, on the device, = the largest absolute value: 0 of none, NaN if one is.
  virtual void largest(const Vector& values, float* found) = 0;

  // Products of a matrix with thin ones, which have as many numbers a column as it has rows or
  // columns. Sums are in float, in an order that only the matrix's form fixes.
  virtual void multiply(const Matrix& matrix, const Thin& columns,
                        const Thin& product) = 0;  ///< product = matrix x columns
  virtual void multiply_transposed(const Matrix& matrix, const Thin& rows,
                                   const Thin& product) = 0;  ///< product = matrix' x rows
  /// to = keep * to + factor * rows x columns'; what `to` holds does not matter where keep is 0.
  virtual void add_product(float keep, float factor, const Thin& rows, const Thin& columns,
                           const Matrix& to) = 0;
  /// Makes the vectors orthogonal to each other, of length 1 and in their order, by Gram-Schmidt's
  /// method with sums in double. One that depends on those before it becomes some other one; those
  /// after the first `length` become 0.
  virtual void orthogonalise(const Thin& vectors) = 0;
};

/// Throws Error, beginning with `verb`, when a vector has a type that Vectors does not know, no
/// memory or no scales.
void check_vector(const Vector& vector, const char* verb);
/// The same for two of one call, which must have the same count.
void check_vectors(const Vector& from, const Vector& to, const char* verb);
/// The same for thin matrices of `rows` and of `columns` that meet a matrix.
void check_product(const Matrix& matrix, const Thin& rows, const Thin& columns, const char* verb);
void check_thin(const Thin& thin, const char* verb);

}  // namespace lockstep::backend
