#pragma once

// Why running statistics stay wide. They are summed, not fed back: what a narrow format leaves out
// of them would be lost, and they are a thousandth of the bytes.
//
// Why int8 has two separate hops. A sum of int8 needs the scales of all ranks, so no collective
// can make it. Rank o owns chunk o of a bucket: it gets the others' chunks, adds them in the order
// of the ranks, in float, and gives the sum's int8 to all. Only one rank makes each number, so all
// end with the same bits.
//
// Why errors are kept in bf16. They are small compared with the gradients, a rank's state would
// otherwise double in checkpoints, and an error of the error is less than 1/256 of it.

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "reduce/hops.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {

constexpr std::size_t half_bytes(std::size_t numbers) { return 2 * numbers; }

/// bf16 or fp16. The owner of a number adds in float and rounds once (NCCL: as it likes). fp16
/// without a loss scale travels times 256, so that gradients down
/// to 2e-10 are not lost; those above 255 become infinite.
class HalfExchange final : public HopExchange {
 public:
  HalfExchange(ExchangeSpec spec, const ExchangeParts& parts);
  std::string note() const override;

 private:
  void send(std::size_t bucket) override;
  void take(std::size_t bucket) override;
  backend::Vector narrow(std::size_t bucket) const;

  const comm::ElementType type_;
  const float factor_;
  backend::DeviceMemory sums_;  ///< as the arena is laid out
};

/// int8 with one scale for each 256 numbers (backend::Vector). What rounding leaves out of a rank's
/// gradients, and what it leaves out of the sum that a rank owns, is added in the next step (error
/// feedback: Seide et al. 2014, Karimireddy et al. 2019). A rank needs others, and gradients have
/// no loss scale.
class Int8Exchange final : public HopExchange {
 public:
  Int8Exchange(ExchangeSpec spec, const ExchangeParts& parts);
  std::string note() const override;
  StateOutline outline() const override;
  void save(comm::Control& control, const TakeBytes& take) const override;
  std::string load(const SavedState& state) override;

 private:
  struct Ints {
    backend::DeviceMemory values{}, scales{};
  };
  /// Of one bucket: `world` chunks of the same size, whole blocks of a scale.
  struct Part {
    std::size_t numbers = 0, chunk = 0;
    Ints sent{};                                 ///< then the sum
    Ints came{};                                 ///< others' parts of this rank's chunk, by rank
    backend::DeviceMemory error{}, sum_error{};  ///< bf16: of all numbers, of this rank's chunk
  };
  void send(std::size_t bucket) override;
  bool has_second_hop() const override { return true; }
  void send_again(std::size_t bucket) override;
  void take(std::size_t bucket) override;
  Ints allocate(std::size_t count, const std::string& what);
  /// `first` begins a block of a scale.
  static backend::Vector of(const Ints& ints, std::size_t first, std::size_t count);
  void trade(const Part& part, const std::string& name);
  void round(const backend::Vector& values, const backend::Vector& rounded,
             const backend::Vector& error);
  std::size_t owned(const Part& part) const;
  std::vector<ArenaPart> errors() const;
  std::vector<ArenaPart> sum_errors() const;
  void for_sum_errors(const std::function<void(const backend::Vector& error,
                                               const backend::Vector& place)>& work) const;
  void gather_sum_errors() const;

  std::vector<Part> parts_of_buckets_;
};

/// Bytes of such an exchange between `world` ranks.
std::size_t int8_bytes(std::size_t numbers, std::size_t world);

}  // namespace lockstep::reduce
