#pragma once

// Why running statistics stay wide. They are summed, not fed back: what a narrow format leaves out
// of them would be lost, and they are a thousandth of the bytes.
//
// Why int8 has two separate hops. A sum of int8 needs the scales of all ranks, so no collective
// can make it. Rank o owns chunk o of a bucket: it gets the others' chunks, adds them in the order
// of the ranks, in float, and gives the sum's int8 to all. Only one rank makes each number, so all
// end with the same bits.
//
// Why the second hop starts four buckets later. It follows arithmetic on what the first hop
// brought, and all ranks must issue the same collectives in the same order, so time cannot decide
// when it starts. Four buckets later the first hop has usually ended, and backward does not wait
// for it, also where ranks share cores (two were too few there: 4 ranks on 2 cores lost 5 % of a
// step).
//
// Why errors are kept in bf16. They are small compared with the gradients, a rank's state would
// otherwise double in checkpoints, and an error of the error is less than 1/256 of it.

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "reduce/bucket_exchange.hpp"
#include "reduce/plain_state.hpp"

namespace lockstep::reduce {

/// Buckets between the two hops of a bucket.
constexpr std::size_t hops_apart = 4;

constexpr std::size_t half_bytes(std::size_t numbers) { return 2 * numbers; }

/// Sums of what has fewer bytes than gradients; running statistics in fp32. In one hop, or in two,
/// the second of which follows arithmetic on what the first one brought.
class NarrowExchange : public BucketExchange {
 public:
  void begin() override;

 protected:
  NarrowExchange(ExchangeSpec spec, const ExchangeParts& parts);
  /// The bucket's gradients are in the compute stream: puts the first hop into the network stream.
  virtual void send(std::size_t bucket) = 0;
  /// Whether there is a second hop in this step, and what it is. Later work on the compute stream
  /// sees what the first one brought.
  virtual bool has_second_hop() const { return false; }
  virtual void send_again(std::size_t) {}
  /// Later work on the compute stream sees what all hops brought: makes gradients of it.
  virtual void take(std::size_t bucket) = 0;

  std::size_t rank() const { return static_cast<std::size_t>(communicator_.rank()); }
  std::size_t world() const { return static_cast<std::size_t>(communicator_.world()); }
  device::Stream& compute() const { return parts_.backend.device().compute(); }
  device::Stream& network() const { return communicator_.network(); }
  std::size_t learned(std::size_t bucket) const;  ///< numbers of it that travel narrow
  /// `count` learned gradients of the bucket from its `first` one on.
  backend::Vector gradients(std::size_t bucket, std::size_t first, std::size_t count) const;
  void sum_statistics(std::size_t bucket);

  const ExchangeParts parts_;
  backend::Vectors& vectors_;

 private:
  void start(std::size_t bucket) final;
  void finish(std::size_t bucket) final;
  void send_again_below(std::size_t bucket);

  std::vector<std::unique_ptr<device::Event>> arrived_, done_;  ///< of the first hop, of all
  std::size_t sent_again_ = 0;  ///< buckets whose second hop has started in this step
};

/// bf16 or fp16. The owner of a number adds in float and rounds once (NCCL: as it likes). fp16
/// without a loss scale travels times 256, so that gradients down
/// to 2e-10 are not lost; those above 255 become infinite.
class HalfExchange final : public NarrowExchange {
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
class Int8Exchange final : public NarrowExchange {
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
