#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/backend/parameters.hpp"
#include "lockstep/backend/precision.hpp"
#include "lockstep/nn/network.hpp"
#include "lockstep/optim/rule.hpp"
#include "ports/cuda/device.hpp"
#include "ports/cuda/kernels/kernels.hpp"

namespace lockstep::cuda {

/// Converts between the plain layout of a convolution's weights, [out, in, kernel, kernel], and the
/// GPU's, [out, kernel, kernel, channels], where the channels from `in` on are padding and stay
/// zero.
struct FilterShape {
  std::size_t outputs = 1, inputs = 1, kernel = 1, channels = 1;
  std::size_t plain_count() const { return outputs * inputs * kernel * kernel; }
  std::size_t physical_count() const { return outputs * channels * kernel * kernel; }
};
void to_physical(const FilterShape& shape, std::span<const float> plain, std::span<float> physical);
void to_plain(const FilterShape& shape, std::span<const float> physical, std::span<float> plain);

/// The arena's slices on a GPU: convolutions' weights in the GPU's layout, everything else plain.
nn::ArenaLayout arena_layout(const nn::Network& network);
/// The layout of one tensor's values; nothing for tensors that are plain.
std::optional<FilterShape> filter_shape(const nn::Network& network, const nn::Tensor& tensor);
/// All slices with their padding, cut into pieces for one thread block each, in order.
std::vector<Chunk> cut_chunks(const nn::ArenaLayout& layout);

/// The arena on a GPU, a copy of the weights in the storage that convolutions read, and the step's
/// scalars. All work goes to the device's compute stream; import, export and hash wait for it.
class CudaParameters final : public backend::Parameters {
 public:
  CudaParameters(const nn::Network& network, backend::Precision precision, CudaDevice& device,
                 backend::Keeps keeps = backend::Keeps::training);
  const nn::ArenaLayout& arena() const override { return layout_; }
  float* device_pointer(backend::Part part) override { return at(part, 0); }
  void weights_changed() override;
  void import_own(backend::Part part, std::size_t slice, std::span<const float> plain) override;
  void export_own(backend::Part part, std::size_t slice, std::span<float> plain) const override;
  void start_average() override;
  bool has_average() const override { return parts_[average_part].data() != nullptr; }
  void start_second_moments() override;
  bool has_second_moments() const override { return parts_[moments_part].data() != nullptr; }
  std::uint32_t own_hash() const override;
  std::optional<backend::LossScale> loss_scale() const override;
  double clipped_norm() const override { return read_scalars().clipped_norm; }
  std::optional<optim::TrustRatios> trust_ratios() const override;
  void set_loss_scale(const backend::LossScale& scale) override;

  backend::Precision precision() const { return precision_; }
  float* at(backend::Part part, std::size_t offset) const;  ///< nullptr where it is not kept
  float* find(backend::Part part, const std::string& name) const {
    return at(part, layout_.find(name).offset);
  }
  std::size_t slice_index(const std::string& name) const;
  /// The weights of a slice as convolutions read them: the copy, or in fp32 the weights themselves.
  const void* readable(const std::string& name) const;
  DeviceScalars* scalars() const { return scalars_.as<DeviceScalars>(); }
  /// Puts the scalars into device memory, unless they are already there.
  void set_scalars(const optim::StepScalars& step);

  void judge(const float* largest);
  void update(const optim::UpdateRule& rule, std::size_t first, std::size_t last);
  void update_statistics(std::size_t micro_batches);
  std::vector<double> norms(backend::Part part) const;
  void clip(float limit);
  void update_average(float share);
  void swap_average();

 private:
  /// One value per slice; sent to the device when it changes.
  struct Table {
    std::vector<float> values;
    DeviceBuffer memory;
  };
  const float* table(Table& table, const std::vector<float>& values);
  /// The range [first, last) of the chunks that make up slices [first, last).
  std::pair<std::size_t, std::size_t> chunks_of(std::size_t first, std::size_t last) const;
  void read(const void* from, void* to, std::size_t bytes) const;
  DeviceScalars read_scalars() const;
  /// Starts to add the squares of slices [first, last). Returns where the sums of all slices are;
  /// weights and other parts have separate places.
  const double* add_squares(backend::Part part, std::size_t first, std::size_t last) const;
  /// Each formula's kernels, for slices [first, second).
  void apply(const optim::Sgd& sgd, const optim::UpdateRule& rule, const UpdateArgs& args,
             std::pair<std::size_t, std::size_t> slices);
  void apply(const optim::Lars& lars, const optim::UpdateRule& rule, const UpdateArgs& args,
             std::pair<std::size_t, std::size_t> slices);
  void apply(const optim::Lamb& lamb, const optim::UpdateRule& rule, const UpdateArgs& args,
             std::pair<std::size_t, std::size_t> slices);
  void apply(const optim::Muon& muon, const optim::UpdateRule& rule, const UpdateArgs& args,
             std::pair<std::size_t, std::size_t> slices);
  float* muon_memory();
  TrustArgs trust_args(const optim::UpdateRule& rule);
  /// Once the last slices are updated: the trust ratios of all.
  void end_trust(const TrustArgs& trust, std::size_t last_slice);
  AverageArgs average_args() const;

  backend::Precision precision_;
  Storage storage_;
  CudaDevice& device_;
  nn::ArenaLayout layout_;
  std::vector<std::optional<FilterShape>> filters_;  // by slice
  std::vector<float> statistics_momentum_;           // by slice
  std::vector<Chunk> chunks_;
  static constexpr auto average_part = static_cast<std::size_t>(backend::Part::average);
  static constexpr auto moments_part = static_cast<std::size_t>(backend::Part::second_moments);
  DeviceBuffer parts_[moments_part + 1], copies_, scalars_, device_chunks_, trust_, muon_room_;
  mutable DeviceBuffer first_chunks_, chunk_sums_, slice_sums_,
      crc_sums_;  // allocated when first needed
  Table decay_, adaptive_, rate_;
  /// By the number of micro-batches: a recorded step always reads the one that it began with.
  std::map<std::size_t, Table> kept_;
  std::optional<optim::StepScalars> newest_step_;
};

}  // namespace lockstep::cuda
