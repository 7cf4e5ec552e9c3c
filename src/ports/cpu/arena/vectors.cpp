#include "ports/cpu/arena/arena.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "lockstep/base/error.hpp"
#include "ports/cpu/kernels/kernels.hpp"
#include "ports/cpu/parameters.hpp"

namespace lockstep::cpu {

namespace {

using backend::Vector;
using backend::arithmetic::scale_block;
using comm::ElementType;

/// A block of a vector, or a shorter rest.
struct Block {
  std::size_t first = 0, count = 0;
  std::size_t number() const { return first / scale_block; }
};

template <class Work>
void each_block(std::size_t values, Team& team, const Work& work) {
  const std::size_t blocks = backend::scales_of(values);
  team.run([&](std::size_t lane) {
    const std::size_t end = blocks * (lane + 1) / team.lanes();
    for (std::size_t b = blocks * lane / team.lanes(); b < end; ++b)
      work(lane, Block{b * scale_block, std::min(scale_block, values - b * scale_block)});
  });
}

template <class T>
T* at(const Vector& vector, const Block& block) {
  return static_cast<T*>(vector.data) + block.first;
}

void widen(const Vector& from, const Block& block, float* to) {
  const VectorKernels& kernels = vector_kernels();
  switch (from.type) {
    case ElementType::f16:
      return kernels.widen_f16(at<const std::uint16_t>(from, block), block.count, to);
    case ElementType::bf16:
      return kernels.widen_bf16(at<const std::uint16_t>(from, block), block.count, to);
    case ElementType::i8:
      return kernels.decode_i8(at<const std::int8_t>(from, block), from.scales[block.number()],
                               block.count, to);
    default:
      std::memcpy(to, at<const float>(from, block), block.count * sizeof(float));
  }
}

void round(const float* from, const Block& block, const Vector& to) {
  const VectorKernels& kernels = vector_kernels();
  switch (to.type) {
    case ElementType::f16:
      return kernels.round_f16(from, block.count, at<std::uint16_t>(to, block));
    case ElementType::bf16:
      return kernels.round_bf16(from, block.count, at<std::uint16_t>(to, block));
    case ElementType::i8: {
      const auto largest = std::bit_cast<float>(kernels.largest(from, block.count));
      const float scale = backend::arithmetic::block_scale(largest);
      to.scales[block.number()] = scale;
      return kernels.encode_i8(from, backend::arithmetic::inverse_of(scale), block.count,
                               at<std::int8_t>(to, block));
    }
    default:
      std::memcpy(at<float>(to, block), from, block.count * sizeof(float));
  }
}

/// The block's floats: the vector's own, or those in `room`.
const float* floats(const Vector& from, const Block& block, float* room) {
  if (from.type == ElementType::f32) return at<const float>(from, block);
  widen(from, block, room);
  return room;
}

/// Calls work(floats) on the block, in place or by way of a copy in floats.
template <class Work>
void change(const Vector& values, const Block& block, const Work& work) {
  if (values.type == ElementType::f32) return work(at<float>(values, block));
  float room[scale_block];
  widen(values, block, room);
  work(room);
  round(room, block, values);
}

}  // namespace

backend::DeviceMemory CpuVectors::allocate(std::size_t bytes, const std::string& what) {
  try {
    auto memory = std::make_shared<HostMemory>(bytes);
    std::byte* data = memory->data();
    return {data, [memory](std::byte*) mutable { memory.reset(); }};
  } catch (const std::bad_alloc&) {
    throw Error(fmt::format("there is no memory for {}: {} bytes", what, bytes));
  }
}

void CpuVectors::read(const void* from, std::span<std::byte> to) {
  if (!to.empty()) std::memcpy(to.data(), from, to.size());
}

void CpuVectors::write(std::span<const std::byte> from, void* to) {
  if (!from.empty()) std::memcpy(to, from.data(), from.size());
}

void CpuVectors::cast(const Vector& from, const Vector& to) {
  check_vectors(from, to, "cast");
  if (from.data == to.data && from.type == to.type) return;
  each_block(from.count, team_, [&](std::size_t, const Block& block) {
    if (to.type == ElementType::f32) return widen(from, block, at<float>(to, block));
    float room[scale_block];
    round(floats(from, block, room), block, to);
  });
}

void CpuVectors::add(float factor, const Vector& from, const Vector& to) {
  check_vectors(from, to, "add");
  each_block(from.count, team_, [&](std::size_t, const Block& block) {
    float room[scale_block];
    const float* added = floats(from, block, room);
    if (from.data == to.data) {  // kernels take no overlap
      std::memmove(room, added, block.count * sizeof(float));
      added = room;
    }
    change(to, block, [&](float* sum) { vector_kernels().add(factor, added, block.count, sum); });
  });
}

void CpuVectors::scale(float factor, const Vector& values) {
  check_vector(values, "scale");
  if (values.type == ElementType::i8)
    return vector_kernels().scale(factor, backend::scales_of(values.count), values.scales);
  each_block(values.count, team_, [&](std::size_t, const Block& block) {
    change(values, block, [&](float* v) { vector_kernels().scale(factor, block.count, v); });
  });
}

void CpuVectors::largest(const Vector& values, float* found) {
  check_vector(values, "largest");
  std::vector<std::uint32_t> of_lane(team_.lanes());
  each_block(values.count, team_, [&](std::size_t lane, const Block& block) {
    float room[scale_block];
    const std::uint32_t bits = vector_kernels().largest(floats(values, block, room), block.count);
    of_lane[lane] = std::max(of_lane[lane], bits);
  });
  *found = std::bit_cast<float>(*std::max_element(of_lane.begin(), of_lane.end()));
}

// Products of matrices with thin ones, and the orthogonal vectors of these.

namespace {

using backend::Matrix;
using backend::Thin;

constexpr std::size_t share_of_lanes = 16;

/// What lies next to each other in memory: rows of a panel, or a row's columns.
bool rows_are_lanes(const nn::MatrixForm& form) { return form.panel > 1; }

LaneGrid grid_of(const nn::MatrixForm& form) {
  if (rows_are_lanes(form))
    return {form.rows, form.panel, form.panel_stride, form.columns, form.column_stride};
  check(form.column_stride == 1, "a matrix whose numbers do not lie next to each other");
  return {form.columns, form.columns, 0, form.rows, form.panel_stride};
}

/// Calls work(first, last) for parts of [0, count), the same for any number of lanes.
template <class Work>
void share_out(std::size_t count, Team& team, const Work& work) {
  const std::size_t parts = (count + share_of_lanes - 1) / share_of_lanes;
  team.run([&](std::size_t lane) {
    const std::size_t end = parts * (lane + 1) / team.lanes();
    for (std::size_t p = parts * lane / team.lanes(); p < end; ++p)
      work(p * share_of_lanes, std::min(count, (p + 1) * share_of_lanes));
  });
}

/// product = matrix' or matrix x thin: sums over lanes or over steps.
void put_product(const Matrix& matrix, bool over_lanes, const Thin& by, const Thin& product,
                 Team& team) {
  const LaneGrid grid = grid_of(matrix.form);
  const ThinKernels& kernels = thin_kernels(by.width);
  const auto sum = over_lanes ? kernels.sum_lanes : kernels.sum_steps;
  share_out(product.length, team, [&](std::size_t first, std::size_t last) {
    sum(grid, matrix.data, by.data, first, last, product.data);
  });
}

double dot(const float* a, const float* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i)
    sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
  return sum;
}

/// Takes from vector k what it has of those before it, twice: the first time leaves what rounding
/// adds. Returns its length.
double project_out(const Thin& vectors, std::size_t k) {
  float* mine = vectors.data + k * vectors.length;
  for (int time = 0; time < 2; ++time)
    for (std::size_t j = 0; j < k; ++j) {
      const float* other = vectors.data + j * vectors.length;
      const auto share = static_cast<float>(dot(mine, other, vectors.length));
      for (std::size_t i = 0; i < vectors.length; ++i) mine[i] -= share * other[i];
    }
  return std::sqrt(dot(mine, mine, vectors.length));
}

}  // namespace

void CpuVectors::multiply(const Matrix& matrix, const Thin& columns, const Thin& product) {
  check_product(matrix, product, columns, "multiply");
  put_product(matrix, !rows_are_lanes(matrix.form), columns, product, team_);
}

void CpuVectors::multiply_transposed(const Matrix& matrix, const Thin& rows, const Thin& product) {
  check_product(matrix, rows, product, "multiply_transposed");
  put_product(matrix, rows_are_lanes(matrix.form), rows, product, team_);
}

void CpuVectors::add_product(float keep, float factor, const Thin& rows, const Thin& columns,
                             const Matrix& to) {
  check_product(to, rows, columns, "add_product");
  const LaneGrid grid = grid_of(to.form);
  const bool by_rows = rows_are_lanes(to.form);
  const Thin &lanes = by_rows ? rows : columns, &steps = by_rows ? columns : rows;
  share_out(grid.lanes, team_, [&](std::size_t first, std::size_t last) {
    thin_kernels(rows.width)
        .add_outer(grid, keep, factor, lanes.data, steps.data, first, last, to.data);
  });
}

void CpuVectors::orthogonalise(const Thin& vectors) {
  check_thin(vectors, "orthogonalise");
  for (std::size_t k = 0; k < vectors.width; ++k) {
    float* mine = vectors.data + k * vectors.length;
    const double before = std::sqrt(dot(mine, mine, vectors.length));
    double length = project_out(vectors, k);
    if (length <= backend::arithmetic::dependent_share * before) {
      for (std::size_t i = 0; i < vectors.length; ++i)
        mine[i] = backend::arithmetic::stand_in(k, i);
      length = project_out(vectors, k);
    }
    const float factor = k < vectors.length ? static_cast<float>(1 / length) : 0;
    for (std::size_t i = 0; i < vectors.length; ++i) mine[i] *= factor;
  }
}

}  // namespace lockstep::cpu
