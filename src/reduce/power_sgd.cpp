#include "reduce/power_sgd.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/nn/arena.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {

using backend::Thin;
using backend::Vector;

namespace {

constexpr const char* columns_key = "columns";

float* floats_of(const backend::DeviceMemory& memory, std::size_t place) {
  return reinterpret_cast<float*>(memory.get()) + place;
}

/// Whether thin matrices of this rank are smaller than the slice by the factor that is asked for.
bool has_low_rank(const nn::Slice& slice, const PowerSgdSpec& how) {
  const auto& [rows, columns, panel, panel_stride, column_stride] = slice.form;
  return rows > 0 && nn::learned(slice.tensor.role) &&
         how.least_saving * static_cast<double>(how.rank * (rows + columns)) <=
             static_cast<double>(rows * columns);
}

/// How many numbers each of a product's columns has in the plain layout.
std::size_t plain_columns(const nn::Slice& slice) {
  return slice.tensor.count() / slice.tensor.shape.front();
}

}  // namespace

LowRankTraffic power_sgd_traffic(const nn::ArenaLayout& layout, const PowerSgdSpec& how) {
  LowRankTraffic traffic;
  for (std::size_t s = 0; s < layout.moving_slices(); ++s) {
    const nn::Slice& slice = layout.slices[s];
    if (!has_low_rank(slice, how)) {
      traffic.exact += slice.size;
      continue;
    }
    ++traffic.matrices;
    traffic.thin += how.rank * (slice.form.rows + slice.form.columns);
  }
  return traffic;
}

PowerSgdExchange::PowerSgdExchange(ExchangeSpec spec, const ExchangeParts& parts)
    : HopExchange(spec, parts), how_(spec.power_sgd) {
  check(world() > 1 && !spec.loss_scale,
        "PowerSGD needs several ranks and gradients without a scale");
  check(how_.rank > 0 && how_.rank <= backend::most_width, "PowerSGD has a rank of 1 to 8");
  const nn::ArenaLayout& layout = parts.parameters.layout();
  error_ = vectors_.allocate(layout.learned_size * sizeof(float), "what PowerSGD left out");
  for (const Bucket& bucket : buckets()) {
    Part part;
    for (std::size_t s = bucket.first_slice; s < bucket.last_slice; ++s)
      add_slice(part, layout.slices[s]);
    for (Plain& plain : part.plain) {
      plain.place = part.sent_floats;
      part.sent_floats += plain.size;
    }
    part.sent = vectors_.allocate(part.sent_floats * sizeof(float), "gradients of low rank");
    part.columns = vectors_.allocate(part.columns_floats * sizeof(float), "columns of low rank");
    fill_columns(part);
    parts_of_buckets_.push_back(std::move(part));
  }
}

void PowerSgdExchange::add_slice(Part& part, const nn::Slice& slice) {
  if (!has_low_rank(slice, how_)) {
    part.plain.push_back({.offset = slice.offset, .size = slice.size});
    return;
  }
  part.products.push_back({.error = {floats_of(error_, slice.offset), slice.form},
                           .offset = slice.offset,
                           .rows = part.sent_floats,
                           .columns = part.columns_floats});
  part.sent_floats += how_.rank * slice.form.rows;
  part.columns_floats += how_.rank * slice.form.columns;
}

/// The first Q: of no direction in particular, and the same on all ranks.
void PowerSgdExchange::fill_columns(const Part& part) {
  std::vector<float> first;
  for (const Product& product : part.products)
    for (std::size_t k = 0; k < how_.rank; ++k)
      for (std::size_t c = 0; c < product.error.form.columns; ++c)
        first.push_back(backend::arithmetic::stand_in(k, c));
  vectors_.write(std::as_bytes(std::span(first)), part.columns.get());
}

std::string PowerSgdExchange::note() const {
  const LowRankTraffic traffic = power_sgd_traffic(parts_.parameters.layout(), how_);
  const std::string begins =
      how_.from_step > 0 ? fmt::format(" from step {} on", how_.from_step) : "";
  return fmt::format(
      "gradients of {} matrices travel as products of rank {}{}, all others as fp32, {:.1f} % of "
      "the numbers; what a product leaves out is added in the next step",
      traffic.matrices, how_.rank, begins,
      100 * static_cast<double>(traffic.thin + traffic.exact) /
          static_cast<double>(parts_.parameters.layout().size));
}

Thin PowerSgdExchange::thin(const backend::DeviceMemory& memory, std::size_t place,
                            std::size_t length) const {
  return {floats_of(memory, place), length, how_.rank};
}

Vector PowerSgdExchange::whole(std::size_t offset, std::size_t size) const {
  return backend::vector(parts_.parameters.device_pointer(backend::Part::gradients) + offset, size);
}

void PowerSgdExchange::sum(const backend::DeviceMemory& memory, std::size_t count,
                           const std::string& name) {
  network().wait(*compute().record());  // what is sent precedes its sum
  communicator_.all_reduce(comm::elements(floats_of(memory, 0), count), comm::Reduction::sum, name,
                           network());
}

/// The first hop: P, and what is summed exactly.
void PowerSgdExchange::send(std::size_t number) {
  const Part& part = parts_of_buckets_[number];
  const std::string name = fmt::format("bucket {}", number);
  if (is_exact()) {
    const Bucket& bucket = buckets()[number];
    network().wait(*compute().record());  // the bucket's last gradient precedes its sum
    return communicator_.all_reduce(whole(bucket.offset, bucket.size).elements(),
                                    comm::Reduction::sum, name, network());
  }
  for (const Product& product : part.products) {
    const nn::MatrixForm& form = product.error.form;
    const std::size_t count = form.rows * form.columns;
    vectors_.add(1, whole(product.offset, count), backend::vector(product.error.data, count));
    vectors_.multiply(product.error, thin(part.columns, product.columns, form.columns),
                      thin(part.sent, product.rows, form.rows));
  }
  for (const Plain& plain : part.plain)
    vectors_.cast(whole(plain.offset, plain.size),
                  backend::vector(floats_of(part.sent, plain.place), plain.size));
  sum(part.sent, part.sent_floats, name);
}

/// The second hop: Q. What the product with this rank's own Q leaves out is the next error.
void PowerSgdExchange::send_again(std::size_t number) {
  const Part& part = parts_of_buckets_[number];
  for (const Product& product : part.products) {
    const nn::MatrixForm& form = product.error.form;
    const Thin rows = thin(part.sent, product.rows, form.rows);
    const Thin columns = thin(part.columns, product.columns, form.columns);
    vectors_.orthogonalise(rows);
    vectors_.multiply_transposed(product.error, rows, columns);
    vectors_.add_product(1, -1, rows, columns, product.error);
  }
  sum(part.columns, part.columns_floats, fmt::format("bucket {}, columns", number));
}

void PowerSgdExchange::take(std::size_t number) {
  const Part& part = parts_of_buckets_[number];
  if (is_exact()) return;
  float* gradients = parts_.parameters.device_pointer(backend::Part::gradients);
  for (const Product& product : part.products) {
    const nn::MatrixForm& form = product.error.form;
    vectors_.add_product(0, 1, thin(part.sent, product.rows, form.rows),
                         thin(part.columns, product.columns, form.columns),
                         {gradients + product.offset, form});
  }
  for (const Plain& plain : part.plain)
    vectors_.cast(backend::vector(floats_of(part.sent, plain.place), plain.size),
                  whole(plain.offset, plain.size));
}

// ---- state --------------------------------------------------------------------------------------

std::vector<ArenaPart> PowerSgdExchange::errors() const {
  return {arena_part(
      parts_, backend::vector(floats_of(error_, 0), parts_.parameters.layout().learned_size))};
}

bool PowerSgdExchange::has_products() const {
  return std::ranges::any_of(parts_of_buckets_,
                             [](const Part& part) { return !part.products.empty(); });
}

std::size_t PowerSgdExchange::columns_bytes() const {
  const nn::ArenaLayout& layout = parts_.parameters.layout();
  std::size_t floats = 0;
  for (const nn::Slice& slice : std::span(layout.slices).first(layout.learned_slices))
    if (has_low_rank(slice, how_)) floats += how_.rank * plain_columns(slice);
  return floats * sizeof(float);
}

/// Calls work() for each product, in the order of slices: with its slice, which is a matrix in the
/// gradients, unit vectors as long as its rows, and Q.
void PowerSgdExchange::for_products(
    const std::function<void(std::size_t, const backend::Matrix&, const Thin&, const Thin&)>& work)
    const {
  const nn::ArenaLayout& layout = parts_.parameters.layout();
  std::size_t s = 0;
  for (const Part& part : parts_of_buckets_)
    for (const Product& product : part.products) {
      while (layout.slices[s].offset != product.offset) ++s;
      const nn::MatrixForm& form = product.error.form;
      std::vector<float> ones(how_.rank * form.rows, 0);
      for (std::size_t k = 0; k < how_.rank; ++k) ones[k * form.rows + k] = 1;
      const auto units = vectors_.allocate(ones.size() * sizeof(float), "unit vectors");
      vectors_.write(std::as_bytes(std::span(ones)), units.get());
      work(s, {static_cast<float*>(whole(product.offset, 0).data), form}, thin(units, 0, form.rows),
           thin(part.columns, product.columns, form.columns));
      compute().synchronize();  // the unit vectors were read
    }
}

/// Columns lie in the order of a backend's matrix. As the first rows of a gradient they come into
/// the plain order: the products with unit vectors are exact.
void PowerSgdExchange::save_columns(const TakeBytes& take) const {
  const nn::ArenaLayout& layout = parts_.parameters.layout();
  std::vector<float> plain;
  for_products(
      [&](std::size_t s, const backend::Matrix& gradient, const Thin& units, const Thin& columns) {
        vectors_.add_product(0, 1, units, columns, gradient);
        plain.resize(layout.slices[s].tensor.count());
        parts_.parameters.export_slice(backend::Part::gradients, s, plain);
        take({reinterpret_cast<const char*>(plain.data()),
              how_.rank * plain_columns(layout.slices[s]) * sizeof(float)});
      });
}

void PowerSgdExchange::load_columns(const SavedState::Next& next) {
  const nn::ArenaLayout& layout = parts_.parameters.layout();
  std::vector<float> plain;
  for_products(
      [&](std::size_t s, const backend::Matrix& gradient, const Thin& units, const Thin& columns) {
        plain.assign(layout.slices[s].tensor.count(), 0);
        next(std::as_writable_bytes(
            std::span(plain).first(how_.rank * plain_columns(layout.slices[s]))));
        parts_.parameters.import_slice(backend::Part::gradients, s, plain);
        vectors_.multiply_transposed(gradient, units, columns);
      });
}

StateOutline PowerSgdExchange::outline() const {
  StateOutline state{.texts = {{steps_key, std::to_string(steps_)}}, .parts = {}};
  if (!has_state() || !has_products()) return state;
  for (std::size_t r = 0; r < world(); ++r)
    state.parts.push_back({rank_key(r), plain_bytes(parts_.parameters.layout(), errors())});
  state.parts.push_back({columns_key, columns_bytes()});
  return state;
}

void PowerSgdExchange::save(comm::Control& control, const TakeBytes& take) const {
  if (!has_state() || !has_products()) return;
  for (std::size_t r = 0; r < world(); ++r) {
    save_plain(parts_, static_cast<int>(r), errors(), take);
    next_part(control);
  }
  if (rank() == 0) save_columns(take);
}

/// A state of a step before its products began has none: they begin now.
std::string PowerSgdExchange::load(const SavedState& state) {
  constexpr std::string_view left_out = "what PowerSGD had left out";
  steps_ = saved_steps(state, name());
  if (is_unordered(state)) return of_older(left_out);
  const std::size_t saved_by = state.parts(rank_prefix);
  if (!has_state() || !has_products() || saved_by == 0) return "";
  const auto fits = [&](bool fit) {
    require(fit, fmt::format("the state of the exchange '{}' is of another network or another rank "
                             "of its products (comm.power-sgd), which here is {}",
                             name(), how_.rank));
  };
  const auto shared = state.open(columns_key, columns_bytes());
  fits(shared.has_value());
  load_columns(*shared);
  if (saved_by != world()) return of_others(left_out, saved_by, "ranks", world());
  fits(load_plain(parts_, state, rank_key(rank()), errors()));
  return "";
}

}  // namespace lockstep::reduce
