#pragma once

// Why the errors are whole floats, and each rank's own. What is sent depends only on the sum of the
// errors, but its bits depend on each, and a resume has the same bits.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "reduce/hops.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {

/// PowerSGD (Vogels, Karimireddy and Jaggi 2019). A gradient, with what earlier steps left out of
/// it, is a matrix M of a rank's own, with a row for each output. With Q of the last step: P = the
/// sum of all ranks' M Q, made orthogonal; Q = the sum of all M' P; the gradient is P Q'. A rank
/// keeps M - P (M' P)', what its own part lacks, for the next step. So two sums of thin matrices
/// follow each other. Gradients for which these would not be small (PowerSgdSpec::least_saving),
/// those of norms and biases, and running statistics are summed exactly, with the first of the two.
/// Before `from_step` all are.
class PowerSgdExchange final : public HopExchange {
 public:
  PowerSgdExchange(ExchangeSpec spec, const ExchangeParts& parts);
  std::string note() const override;
  bool repeats() const override { return how_.from_step == 0; }
  void after_update() override { ++steps_; }
  StateOutline outline() const override;
  void save(comm::Control& control, const TakeBytes& take) const override;
  std::string load(const SavedState& state) override;
  void begin_at(std::uint64_t step) override { steps_ = step; }

 private:
  /// A slice of low rank; places in the error, and in its bucket's buffers.
  struct Product {
    backend::Matrix error{};
    std::size_t offset = 0, rows = 0, columns = 0;  ///< floats
  };
  /// A slice that travels as it is.
  struct Plain {
    std::size_t offset = 0, size = 0, place = 0;
  };
  struct Part {
    std::vector<Product> products{};
    std::vector<Plain> plain{};
    std::size_t sent_floats = 0, columns_floats = 0;
    backend::DeviceMemory sent{};     ///< P of all products, then the plain slices
    backend::DeviceMemory columns{};  ///< Q of all products, kept from step to step
  };
  void send(std::size_t bucket) override;
  bool has_second_hop() const override { return !is_exact(); }
  void send_again(std::size_t bucket) override;
  void take(std::size_t bucket) override;
  void add_slice(Part& part, const nn::Slice& slice);
  void fill_columns(const Part& part);
  void sum(const backend::DeviceMemory& memory, std::size_t count, const std::string& name);
  bool is_exact() const { return steps_ < how_.from_step; }  ///< the step that is next, or runs
  bool has_state() const { return steps_ > how_.from_step; }
  backend::Thin thin(const backend::DeviceMemory& memory, std::size_t place,
                     std::size_t length) const;
  backend::Vector whole(std::size_t offset, std::size_t size) const;  ///< of the gradients
  std::vector<ArenaPart> errors() const;
  std::size_t columns_bytes() const;
  void save_columns(const TakeBytes& take) const;
  void load_columns(const SavedState::Next& next);
  void for_products(const std::function<void(std::size_t slice, const backend::Matrix& gradient,
                                             const backend::Thin& units,
                                             const backend::Thin& columns)>& work) const;
  bool has_products() const;

  const PowerSgdSpec how_;
  backend::DeviceMemory error_;  ///< as the arena is laid out
  std::vector<Part> parts_of_buckets_;
  std::uint64_t steps_ = 0;
};

/// Bytes of such an exchange, at most.
constexpr std::size_t power_sgd_bytes(std::size_t numbers) { return 2 * numbers * sizeof(float); }

}  // namespace lockstep::reduce
