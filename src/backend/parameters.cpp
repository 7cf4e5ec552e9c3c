#include "lockstep/backend/parameters.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::backend {

void Parameters::add_frozen(const nn::Network& network, std::unique_ptr<Parameters> frozen) {
  std::map<std::string, std::size_t> nodes;
  for (const nn::Tensor& tensor : nn::tensors(network)) nodes[tensor.name] = tensor.node;
  frozen_ = std::move(frozen);
  whole_ = arena();
  for (nn::Slice slice : frozen_->layout().slices) {
    slice.offset += whole_.size;
    whole_.slices.push_back(std::move(slice));
  }
  // The parts number their nodes differently.
  for (nn::Slice& slice : whole_.slices) slice.tensor.node = nodes.at(slice.tensor.name);
  whole_.frozen_slices = frozen_->layout().slices.size();
  whole_.frozen_size = frozen_->layout().size;
}

void Parameters::import_slice(Part part, std::size_t slice, std::span<const float> plain) {
  const std::size_t own = arena().slices.size();
  if (slice < own || !frozen_) return import_own(part, slice, plain);
  if (part == Part::average) return;  // it is the weights
  check(part == Part::weights, "frozen layers have weights only");
  frozen_->import_own(part, slice - own, plain);
}

void Parameters::export_slice(Part part, std::size_t slice, std::span<float> plain) const {
  const std::size_t own = arena().slices.size();
  if (slice < own || !frozen_) return export_own(part, slice, plain);
  check(part == Part::weights || part == Part::average, "frozen layers have weights only");
  frozen_->export_own(Part::weights, slice - own, plain);
}

std::uint32_t Parameters::hash() const {
  if (!frozen_) return own_hash();
  const std::array<std::uint32_t, 2> both{frozen_->own_hash(), own_hash()};
  return crc32c(both.data(), sizeof(both));
}

std::size_t update_bytes(const nn::Network& network, const optim::Formula& formula) {
  if (!std::holds_alternative<optim::Muon>(formula)) return 0;
  std::size_t all = 0, largest = 0;
  for (const nn::Tensor& tensor : nn::tensors(network)) {
    if (tensor.role != nn::Role::conv_weight) continue;
    const std::size_t outputs = tensor.shape.front();
    const std::size_t floats = optim::muon_room(outputs, tensor.count() / outputs);
    all += floats;
    largest = std::max(largest, floats);
  }
  return std::min(all, std::max(largest, optim::muon_together)) * sizeof(float);
}

void initialise(const nn::Network& network, const nn::InitSpec& spec, Parameters& parameters) {
  std::vector<float> plain;
  const auto& slices = parameters.layout().slices;
  for (std::size_t i = 0; i < slices.size(); ++i) {
    plain.resize(slices[i].tensor.count());
    nn::initialise(network, slices[i].tensor, spec, plain);
    parameters.import_slice(Part::weights, i, plain);
  }
}

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
