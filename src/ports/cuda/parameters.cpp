#include "ports/cuda/parameters.hpp"

#include <algorithm>
#include <cmath>
#include <utility>
#include <variant>

#include "lockstep/base/error.hpp"
#include "ports/cuda/kernels/checksum.hpp"
#include "ports/cuda/runtime/stream.hpp"

namespace lockstep::cuda {

CudaParameters::CudaParameters(const nn::Network& network, backend::Precision precision,
                               CudaDevice& device, backend::Keeps keeps)
    : precision_(precision),
      storage_(storage_of(precision)),
      device_(device),
      layout_(cuda::arena_layout(network)),
      chunks_(cut_chunks(layout_)),
      scalars_(sizeof(DeviceScalars), "the step's scalars"),
      device_chunks_(chunks_.size() * sizeof(Chunk), "the arena's chunks") {
  for (const nn::Slice& slice : layout_.slices) {
    filters_.push_back(filter_shape(network, slice.tensor));
    statistics_momentum_.push_back(network.nodes[slice.tensor.node].momentum);
  }
  const cudaStream_t stream = device_.compute().get();
  const std::size_t bytes = layout_.size * sizeof(float);
  const auto cleared = [&](DeviceBuffer& buffer, std::size_t size, const char* what) {
    buffer = DeviceBuffer(size, what);
    check_cuda(cudaMemsetAsync(buffer.data(), 0, size, stream), "cudaMemsetAsync");
  };
  cleared(parts_[static_cast<std::size_t>(backend::Part::weights)], bytes, "the weights");
  if (keeps == backend::Keeps::training) {
    cleared(parts_[static_cast<std::size_t>(backend::Part::gradients)], bytes, "the gradients");
    cleared(parts_[static_cast<std::size_t>(backend::Part::momentum)], bytes, "the momentum");
  }
  if (storage_ != Storage::fp32)
    cleared(copies_, layout_.size * bytes_of(storage_), "the weights' 16-bit copies");
  check_cuda(cudaMemsetAsync(scalars_.data(), 0, scalars_.size(), stream), "cudaMemsetAsync");
  cuda::set_scalars(scalars(), {}, stream);
  backend::LossScale scale;
  if (!backend::has_loss_scale(precision)) scale.scale = 1;
  cuda::set_loss_scale(scalars(), scale, stream);
  check_cuda(cudaMemcpyAsync(device_chunks_.data(), chunks_.data(), device_chunks_.size(),
                             cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync");
  device_.compute().synchronize();
}

float* CudaParameters::at(backend::Part part, std::size_t offset) const {
  const DeviceBuffer& memory = parts_[static_cast<std::size_t>(part)];
  return memory.data() != nullptr ? memory.as<float>() + offset : nullptr;
}

std::size_t CudaParameters::slice_index(const std::string& name) const {
  return static_cast<std::size_t>(&layout_.find(name) - layout_.slices.data());
}

const void* CudaParameters::readable(const std::string& name) const {
  const std::size_t offset = layout_.find(name).offset;
  if (storage_ == Storage::fp32) return at(backend::Part::weights, offset);
  return copies_.data() + offset * bytes_of(storage_);
}

void CudaParameters::import_own(backend::Part part, std::size_t index,
                                std::span<const float> plain) {
  const nn::Slice& slice = layout_.slices.at(index);
  check(plain.size() == slice.tensor.count(), slice.tensor.name + ": wrong size on import");
  std::vector<float> physical(slice.size);
  if (filters_[index])
    to_physical(*filters_[index], plain, physical);
  else
    std::copy(plain.begin(), plain.end(), physical.begin());
  const cudaStream_t stream = device_.compute().get();
  check_cuda(cudaMemcpyAsync(at(part, slice.offset), physical.data(), slice.size * sizeof(float),
                             cudaMemcpyHostToDevice, stream),
             "cudaMemcpyAsync");
  if (part == backend::Part::weights && storage_ != Storage::fp32) {
    const std::size_t whole = (slice.size + 3) / 4 * 4;  // the rest is the slice's padding
    convert_weights(at(part, slice.offset), whole, storage_,
                    copies_.data() + slice.offset * bytes_of(storage_), stream);
  }
  device_.compute().synchronize();
}

void CudaParameters::export_own(backend::Part part, std::size_t index,
                                std::span<float> plain) const {
  const nn::Slice& slice = layout_.slices.at(index);
  check(plain.size() == slice.tensor.count(), slice.tensor.name + ": wrong size on export");
  if (!filters_[index]) return read(at(part, slice.offset), plain.data(), plain.size_bytes());
  std::vector<float> physical(slice.size);
  read(at(part, slice.offset), physical.data(), slice.size * sizeof(float));
  to_plain(*filters_[index], physical, plain);
}

void CudaParameters::read(const void* from, void* to, std::size_t bytes) const {
  check_cuda(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, device_.compute().get()),
             "cudaMemcpyAsync");
  device_.compute().synchronize();
}

// The device adds up each block; the host adds the blocks.
std::uint32_t CudaParameters::own_hash() const {
  const std::size_t words = layout_.size, blocks = (words + crc_block_words - 1) / crc_block_words;
  if (crc_sums_.data() == nullptr)
    crc_sums_ = DeviceBuffer(blocks * sizeof(std::uint32_t), "the weights' checksum");
  std::vector<std::uint32_t> sums(blocks);
  const std::uint32_t next_block = crc_shift(crc_block_words);
  std::uint32_t sum = 0;
  std::size_t all = 0;
  for (const backend::Part part : {backend::Part::weights, backend::Part::momentum,
                                   backend::Part::average, backend::Part::second_moments}) {
    if (at(part, 0) == nullptr) continue;
    crc_sums(at(part, 0), words, crc_sums_.as<std::uint32_t>(), device_.compute().get());
    read(crc_sums_.data(), sums.data(), crc_sums_.size());
    sum = crc_product(crc_shift(words - (blocks - 1) * crc_block_words), sum) ^ sums[0];
    for (std::size_t b = 1; b < blocks; ++b) sum = crc_product(next_block, sum) ^ sums[b];
    all += words;
  }
  // CRC-32C begins with ones, multiplies by x^32 and inverts.
  return ~(crc_product(crc_shift(1), sum) ^ crc_product(crc_shift(all), ~0u));
}

std::optional<backend::LossScale> CudaParameters::loss_scale() const {
  if (!backend::has_loss_scale(precision_)) return std::nullopt;
  return read_scalars().loss_scale;
}

DeviceScalars CudaParameters::read_scalars() const {
  DeviceScalars now;
  read(scalars(), &now, sizeof(now));
  return now;
}

void CudaParameters::set_loss_scale(const backend::LossScale& scale) {
  if (backend::has_loss_scale(precision_))
    cuda::set_loss_scale(scalars(), scale, device_.compute().get());
}

void CudaParameters::set_scalars(const optim::StepScalars& step) {
  if (newest_step_ == step) return;
  cuda::set_scalars(scalars(), step, device_.compute().get());
  newest_step_ = step;
}

void CudaParameters::weights_changed() {
  if (storage_ != Storage::fp32)
    convert_weights(at(backend::Part::weights, 0), layout_.size, storage_, copies_.data(),
                    device_.compute().get());
}

void CudaParameters::judge(const float* largest) {
  if (!backend::has_loss_scale(precision_)) return;
  const cudaStream_t stream = device_.compute().get();
  if (largest) return judge_by(largest, scalars(), stream);
  cuda::judge(at(backend::Part::gradients, 0), layout_.size, scalars(), stream);
}

const float* CudaParameters::table(Table& table, const std::vector<float>& values) {
  check(values.size() == layout_.slices.size(), "a rule must have one value for each slice");
  if (table.values == values) return table.memory.as<float>();
  if (table.values.empty()) table.memory = DeviceBuffer(values.size() * sizeof(float), "a rule");
  table.values = values;
  // From pageable memory: the host waits until the values have been copied. Runs only when a rule
  // changes.
  check_cuda(cudaMemcpyAsync(table.memory.data(), values.data(), values.size() * sizeof(float),
                             cudaMemcpyHostToDevice, device_.compute().get()),
             "cudaMemcpyAsync");
  return table.memory.as<float>();
}

std::pair<std::size_t, std::size_t> CudaParameters::chunks_of(std::size_t first,
                                                              std::size_t last) const {
  const auto begin_of = [&](std::size_t slice) {
    const auto found = std::partition_point(chunks_.begin(), chunks_.end(),
                                            [&](const Chunk& c) { return c.slice < slice; });
    return static_cast<std::size_t>(found - chunks_.begin());
  };
  return {begin_of(first), begin_of(last)};
}

void CudaParameters::update(const optim::UpdateRule& rule, std::size_t first, std::size_t last) {
  check(last <= layout_.learned_slices, "only learned slices are updated by gradients");
  const auto [begin, end] = chunks_of(first, last);
  UpdateArgs args{};
  args.chunks = device_chunks_.as<Chunk>();
  args.first_chunk = begin;
  args.chunk_count = end - begin;
  args.weight_decay = table(decay_, rule.weight_decay);
  args.rates = rule.rate.empty() ? nullptr : table(rate_, rule.rate);
  args.gradients = at(backend::Part::gradients, 0);
  args.weights = at(backend::Part::weights, 0);
  args.velocities = at(backend::Part::momentum, 0);
  args.copies = storage_ == Storage::fp32 ? nullptr : copies_.data();
  args.storage = storage_;
  args.scalars = scalars();
  std::visit(
      [&](const auto& formula) {
        args.momentum = formula.momentum;
        if constexpr (requires { formula.nesterov; }) args.nesterov = formula.nesterov;
        apply(formula, rule, args, {first, last});
      },
      rule.formula);
}

void CudaParameters::update_statistics(std::size_t micro_batches) {
  std::vector<float> kept;
  for (const float share : statistics_momentum_)
    kept.push_back(static_cast<float>(
        std::pow(1 - static_cast<double>(share), static_cast<double>(micro_batches))));
  const auto [begin, end] = chunks_of(layout_.learned_slices, layout_.slices.size());
  StatisticsArgs args{};
  args.chunks = device_chunks_.as<Chunk>();
  args.first_chunk = begin;
  args.chunk_count = end - begin;
  args.kept = table(kept_[micro_batches], kept);
  args.fresh = at(backend::Part::gradients, 0);
  args.running = at(backend::Part::weights, 0);
  args.scalars = scalars();
  update_running_statistics(args, device_.compute().get());
}

}  // namespace lockstep::cuda
