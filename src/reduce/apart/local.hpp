#pragma once

// Why momentum is not averaged with the weights. Each group's momentum belongs to its own way; Lin
// et al. 2020 ("Don't Use Large Mini-Batches, Use Local SGD") average weights alone, and so does
// PyTorch's post-local SGD. A checkpoint holds the mean, which stands for all, and each group's
// own.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/backend/vectors.hpp"
#include "lockstep/reduce/exchange.hpp"
#include "reduce/apart/own_state.hpp"
#include "reduce/bucket_exchange.hpp"

namespace lockstep::reduce {

/// Groups of ranks, usually nodes, that agree on the weights only every few steps (local SGD). In a
/// group each step sums gradients as ExactExchange does. Until `from_step` all ranks do (post-local
/// SGD). Every `every` steps from then on, the weights become the mean over all ranks or, with an
/// outer momentum, take a step of Nesterov's kind towards it (DiLoCo: Douillard et al. 2023), whose
/// gradient is the way from the mean to the weights that the groups agreed on before. Running
/// statistics become the mean.
class LocalExchange final : public Exchange {
 public:
  /// Collective over the communicator.
  LocalExchange(const ExchangeSpec& spec, const ExchangeParts& parts);
  std::string name() const override { return choice_name(ExchangeKind::local); }
  std::string note() const override;
  bool repeats() const override { return false; }
  std::size_t meets_every() const override;
  const std::vector<Bucket>& buckets() const override { return everywhere_.buckets(); }
  void begin() override;
  void ready(std::size_t slice) override { summing().ready(slice); }
  void progress() override { parts_.communicator.progress(); }
  void wait(std::size_t bucket) override;
  SliceRange updates_after(std::size_t bucket) const override {
    return everywhere_.updates_after(bucket);
  }
  const float* largest_gradient() override;
  void after_update() override;
  void settle() override;
  void unsettle() override { own_.unsettle(); }
  StateOutline outline() const override;
  void save(comm::Control& control, const TakeBytes& take) const override;
  std::string load(const SavedState& state) override;
  void begin_at(std::uint64_t step) override;

 private:
  bool is_local() const { return steps_ >= how_.from_step; }  ///< the step that is next, or runs
  /// Whether groups may differ now.
  bool differs() const { return steps_ > how_.from_step; }
  ExactExchange& summing() { return is_local() ? in_group_ : everywhere_; }
  std::size_t world() const { return static_cast<std::size_t>(parts_.communicator.world()); }
  std::size_t group_number() const {
    return how_.groups[static_cast<std::size_t>(parts_.communicator.rank())];
  }
  std::size_t group_size() const { return static_cast<std::size_t>(group_->world()); }
  const nn::ArenaLayout& layout() const { return parts_.parameters.layout(); }
  std::vector<ArenaPart> agreed() const;
  std::vector<ArenaPart> velocity() const;
  bool load_common(const SavedState& state);
  void begin_equal();
  void agree();
  void step_outwards();

  const LocalSpec how_;
  const bool loss_scale_;
  const ExchangeParts parts_;
  backend::Vectors& vectors_;
  const std::vector<std::vector<int>> groups_;  ///< the ranks of each, ascending: the first leads
  const std::unique_ptr<comm::Communicator> group_;
  ExactExchange everywhere_, in_group_;
  OwnState own_;
  backend::DeviceMemory agreed_, velocity_;  ///< with an outer momentum: of the learned weights
  backend::DeviceMemory largest_;
  std::uint64_t steps_ = 0;
};

std::size_t local_bytes(std::size_t numbers, bool second_moments);

}  // namespace lockstep::reduce
