#pragma once

#include <list>
#include <map>
#include <optional>
#include <vector>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/nn/network.hpp"
#include "ports/cpu/team.hpp"
#include "ports/cpu/units/conv/convolution.hpp"

namespace lockstep::cpu {

/// Zeroed memory, aligned to huge pages where it is large.
class HostMemory {
 public:
  HostMemory() = default;
  explicit HostMemory(std::size_t bytes);
  HostMemory(HostMemory&& other) noexcept;
  HostMemory& operator=(HostMemory&& other) noexcept;
  ~HostMemory();
  std::byte* data() const { return data_; }
  /// Gives the pages back to the system: zero again, and resident once they are touched.
  void discard();
  template <class T>
  T* as(std::size_t offset = 0) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  std::byte *base_ = nullptr, *data_ = nullptr;
  std::size_t mapped_ = 0;
};

/// A convolution's weights as evaluation's programs read them, in one format.
struct FoldedWeights {
  dnnl::memory::desc format;  ///< zero: by Winograd's algorithm
  HostMemory memory;
  std::optional<std::uint64_t> version;  ///< of the weights that were folded
};

/// The arena on a CPU. A convolution's slice has the format in which oneDNN writes its weight
/// gradient; everything else is plain.
class CpuParameters final : public backend::Parameters {
 public:
  /// `team`: exports run on its lanes; none: on the caller's thread. It outlives this.
  CpuParameters(const nn::Network& network, Storage storage,
                backend::Keeps keeps = backend::Keeps::training, Team* team = nullptr);
  const nn::ArenaLayout& arena() const override { return layout_; }
  float* device_pointer(backend::Part part) override {
    if (part == backend::Part::weights) weights_changed();
    return at(part, 0);
  }
  void import_own(backend::Part part, std::size_t slice, std::span<const float> plain) override;
  void export_own(backend::Part part, std::size_t slice, std::span<float> plain) const override;
  void for_each(std::size_t count, const std::function<void(std::size_t)>& work) const override;
  void start_average() override;
  bool has_average() const override { return memory_[average_part].data() != nullptr; }
  void start_second_moments() override;
  bool has_second_moments() const override { return memory_[moments_part].data() != nullptr; }
  std::uint32_t own_hash() const override;
  /// Counts the calls after which the weights may differ.
  std::uint64_t version() const { return version_; }
  void weights_changed() override { ++version_; }
  double clipped_norm() const override { return clipped_norm_; }
  void set_clipped_norm(double norm) { clipped_norm_ = norm; }
  std::optional<optim::TrustRatios> trust_ratios() const override;
  std::vector<double> trust_by_slice() const override { return {trust_.begin(), trust_.end()}; }
  /// By slice; 0 for one that is not adaptive.
  void set_trust(std::size_t slice, float ratio) { trust_.at(slice) = ratio; }
  /// Memory for an update, of at least that many floats; the next call may use it again.
  float* room(std::size_t floats);

  Storage storage() const { return storage_; }
  const ConvFormats& formats(std::size_t conv_node) const { return formats_.at(conv_node); }
  float* at(backend::Part part, std::size_t offset) const;  ///< nullptr where it is not kept
  float* find(backend::Part part, const std::string& name) const {
    return at(part, layout_.find(name).offset);
  }
  /// The share that one step's statistics have in the running ones, for a running-statistics slice.
  float statistics_momentum(std::size_t slice) const {
    return momentum_[layout_.slices[slice].tensor.node];
  }
  std::size_t slice_index(const std::string& name) const;
  /// The folded weights of a convolution in this format, the same for all programs; nullptr where
  /// a training keeps its memory for other things.
  FoldedWeights* folded(std::size_t conv_node, const dnnl::memory::desc& format, std::size_t bytes);

 private:
  Storage storage_;
  Team* team_;
  std::map<std::size_t, ConvFormats> formats_;  // by conv node
  nn::ArenaLayout layout_;
  std::vector<float> momentum_;  // by node
  static constexpr auto average_part = static_cast<std::size_t>(backend::Part::average);
  static constexpr auto moments_part = static_cast<std::size_t>(backend::Part::second_moments);
  HostMemory memory_[moments_part + 1];  // by part; the last two are empty until they are kept
  HostMemory room_;
  std::size_t room_floats_ = 0;
  std::vector<float> trust_;  // by slice
  bool keeps_folded_;
  std::map<std::size_t, std::list<FoldedWeights>> folded_;  // by conv node
  double clipped_norm_ = 0;
  std::uint64_t version_ = 0;
};

}  // namespace lockstep::cpu
