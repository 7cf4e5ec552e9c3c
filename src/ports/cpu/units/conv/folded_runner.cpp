#include "ports/cpu/units/conv/folded_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/base/processor.hpp"
#include "ports/cpu/units/conv/conv_runner.hpp"
#include "ports/cpu/units/point_runner.hpp"

namespace lockstep::cpu {

namespace {

using dnnl::memory;

}  // namespace

FoldedRunner::FoldedRunner(Context& context, std::size_t number, Image& image)
    : Runner(context, number), image_(image) {}

void FoldedRunner::plan() {
  geometry_ = ConvGeometry::of(c.network, unit.node, c.storage);
  stripe_ = geometry_.stripe(c.regions[unit.level].stripes);
  const ConvFormats& arena = c.parameters.formats(unit.node);
  if (unit.relu && WinogradConv::fits(stripe_, arena)) {
    winograd_ = WinogradConv(stripe_);
    by_winograd_ = c.spec.winograd.passes(WinogradConv::shape(stripe_)).forward;
  }
  weights_ = c.parameters.find(backend::Part::weights, geometry_.name + ".weight");
  scale_.resize(geometry_.out_channels);
  shift_.resize(geometry_.out_channels);
  if (!unit.input) plan_image();
  if (!by_winograd_) return plan_direct();
  place_folded(winograd_.weight_bytes());
  c.library_scratch =
      std::max(c.library_scratch, winograd_.scratch_bytes(c.regions[unit.level].chunk_stripes));
}

dnnl::convolution_forward::primitive_desc FoldedRunner::direct_desc(const ConvGeometry& geometry,
                                                                    const memory::desc& weights,
                                                                    std::size_t rows) const {
  return folded_desc(geometry, weights, rows, followed_by(unit.skip.has_value(), unit.relu));
}

void FoldedRunner::plan_direct() {
  const Region& region = c.regions[unit.level];
  format_ = direct_desc(stripe_, geometry_.any_weights(), region.chunk_stripes).weights_desc();
  for (const std::size_t count : chunk_sizes(region)) {
    const auto desc = direct_desc(stripe_, format_, count);
    c.library_scratch = std::max(c.library_scratch, desc.scratchpad_desc().get_size());
    prepared_[count].primitive = dnnl::convolution_forward(desc);
  }
  place_folded(format_.get_size());
}

void FoldedRunner::place_folded(std::size_t bytes) {
  shared_ = c.parameters.folded(unit.node, format_, bytes);
  if (!shared_) folded_ = c.lasting_buffer(bytes, unit.level);
}

void FoldedRunner::bind() {
  for (auto& [count, prepared] : prepared_)
    for (std::size_t lane = 0; lane < c.lanes; ++lane)
      prepared.arguments.push_back(arguments_for(stripe_, count, lane));
}

std::unordered_map<int, memory> FoldedRunner::arguments_for(const ConvGeometry& geometry,
                                                            std::size_t rows, std::size_t lane) {
  return {{DNNL_ARG_SRC, memory(geometry.source(rows), engine(), nullptr)},
          {DNNL_ARG_WEIGHTS, memory(format_, engine(), nullptr)},
          {DNNL_ARG_BIAS, memory(bias_desc(geometry), engine(), shift_.data())},
          {DNNL_ARG_DST, memory(geometry.destination(rows), engine(), nullptr)},
          {DNNL_ARG_SCRATCHPAD, library_scratch(c, lane)}};
}

void FoldedRunner::fold() {
  find_norm();
  const std::uint64_t version = c.parameters.version();
  if (shared_ && shared_->version == version) return;
  if (by_winograd_)
    winograd_.transform_forward(weights_, 0, 1, folded());
  else
    fold_weights();
  if (shared_) shared_->version = version;
}

void FoldedRunner::find_norm() {
  const nn::Node& norm = c.network.nodes[unit.bn];
  const auto part = [&](const char* name) {
    return c.parameters.find(backend::Part::weights, norm.name + name);
  };
  const float *gamma = part(".weight"), *beta = part(".bias"), *mean = part(".running_mean"),
              *variance = part(".running_var");
  for (std::size_t i = 0; i < scale_.size(); ++i) {
    const double deviation = std::sqrt(static_cast<double>(variance[i]) + norm.epsilon);
    scale_[i] = gamma[i] * static_cast<float>(1 / deviation);
    shift_[i] = beta[i] - mean[i] * scale_[i];
  }
}

void FoldedRunner::fold_weights() {
  std::vector<float> weights(geometry_.weight_count());
  const std::size_t slice = c.parameters.slice_index(geometry_.name + ".weight");
  c.parameters.export_own(backend::Part::weights, slice, weights);
  const std::size_t of_channel = weights.size() / scale_.size();
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] *= scale_[i / of_channel];
  reorder(plain_weights(format_), weights.data(), format_, folded());
}

const std::byte* FoldedRunner::input(const Chunk& chunk) {
  return unit.input ? c.runners[*unit.input]->value(chunk)
                    : image_.value(chunk, chunk.of(geometry_.height));
}

void FoldedRunner::forward(const Chunk& chunk) {
  if (by_winograd_) {
    if (unit.pad) bring_skip(chunk);
    return forward_by_winograd(chunk, winograd_.whole(chunk.count));
  }
  bring_skip(chunk);
  Prepared& p = prepared_.at(chunk.count);
  execute(p.primitive, chunk.lane, p.arguments[chunk.lane], input(chunk), output(chunk));
}

/// Writes the skip to the place of the sum, unless it is there.
void FoldedRunner::bring_skip(const Chunk& chunk) {
  if (!unit.skip || unit.in_place) return;
  const std::byte* skip = c.runners[*unit.skip]->value(chunk);
  if (unit.pad)
    Shortcut(c, unit, map).pad(map.of(chunk), skip, output(chunk));
  else
    std::memcpy(output(chunk), skip, map.of(chunk).count * map.line_bytes);
}

void FoldedRunner::execute(const dnnl::convolution_forward& primitive, std::size_t lane,
                           std::unordered_map<int, memory>& arguments, const std::byte* from,
                           std::byte* to) const {
  arguments.at(DNNL_ARG_SRC).set_data_handle(const_cast<std::byte*>(from));
  arguments.at(DNNL_ARG_WEIGHTS).set_data_handle(folded());
  arguments.at(DNNL_ARG_DST).set_data_handle(to);
  const DenormalsAreZero during_the_convolution;
  primitive.execute(c.streams[lane], arguments);
}

/// A padded skip is in the place of the sum.
void FoldedRunner::forward_by_winograd(const Chunk& chunk, const WinogradPart& part) {
  WinogradAfter after{.scale = scale_.data(), .shift = shift_.data()};
  if (unit.skip) after.skip = unit.pad ? output(chunk) : c.runners[*unit.skip]->value(chunk);
  winograd_.evaluate(chunk.count, part, input(chunk), weights_, folded(), after, output(chunk),
                     c.lane_library_scratch[chunk.lane].data());
}

void BandedRunner::plan_direct() {
  lines_ = geometry_;
  images_ = c.spec.batch;
  if (geometry_.kernel == 1 && geometry_.stride == 1 && geometry_.padding == 0 && !unit.pad) {
    lines_.height = lines_.out_height = images_ * geometry_.height * geometry_.width;
    lines_.width = lines_.out_width = images_ = 1;
  }
  for (std::size_t lane = 0; lane < c.lanes; ++lane) {
    jobs_.emplace_back();
    for (const Band& band : bands_of(lines_.lines(), images_, lane, c.lanes)) add_job(band);
  }
  place_folded(format_.get_size());
  if (!unit.input) pixels_ = c.fixed_scratch(unit.level, most_lines_in() * line_bytes_in());
}

void BandedRunner::add_job(const Band& band) {
  const ConvGeometry geometry = lines_.on(band.in_count, band.count, band.above, band.below);
  if (format_.is_zero()) format_ = direct_desc(geometry, geometry.any_weights(), 1).weights_desc();
  const auto desc = direct_desc(geometry, format_, 1);
  c.library_scratch = std::max(c.library_scratch, desc.scratchpad_desc().get_size());
  jobs_.back().push_back({band, geometry, dnnl::convolution_forward(desc), {}});
}

std::size_t BandedRunner::most_lines_in() const {
  std::size_t most = 0;
  for (const std::vector<Job>& jobs : jobs_)
    for (const Job& job : jobs) most = std::max(most, job.band.in_count);
  return most;
}

void BandedRunner::bind() {
  for (std::size_t lane = 0; lane < jobs_.size(); ++lane)
    for (Job& job : jobs_[lane]) job.arguments = arguments_for(job.geometry, 1, lane);
}

void BandedRunner::forward(const Chunk& chunk) {
  if (by_winograd_) return unit.pad ? pad_by_winograd(chunk) : share_by_winograd(chunk);
  for (Job& job : jobs_[chunk.lane]) {
    bring_skip(chunk, job.band);
    execute(job.primitive, chunk.lane, job.arguments, source(chunk, job.band),
            output(chunk) + line_out(job.band) * line_bytes_out());
  }
}

void BandedRunner::share_by_winograd(const Chunk& chunk) {
  const WinogradPart part = winograd_.share(chunk.count, chunk.lane, c.lanes);
  if (part.tiles > 0 && part.outs > 0) forward_by_winograd(chunk, part);
}

/// In whole lines, because a padded skip comes in lines.
void BandedRunner::pad_by_winograd(const Chunk& chunk) {
  const std::size_t all = winograd_.tile_lines(), side = winograd_.side();
  for (const Band& tiles : bands_of({all, all, 1, 1, 0}, chunk.count, chunk.lane, c.lanes)) {
    const std::size_t first = tiles.first * side;
    const std::size_t count = std::min(tiles.count * side, geometry_.out_height - first);
    bring_skip(chunk, {.image = tiles.image, .first = first, .count = count});
    forward_by_winograd(chunk, winograd_.lines(tiles.image, tiles.first, tiles.count));
  }
}

void BandedRunner::bring_skip(const Chunk& chunk, const Band& band) {
  if (!unit.skip || unit.in_place) return;
  const std::byte* skip = c.runners[*unit.skip]->value(chunk);
  if (unit.pad) {
    const Shortcut shortcut(c, unit, map);
    const nn::LineRange lines{band.image * map.shape.height + band.first, band.count};
    const std::size_t from = shortcut.wide_lines(lines).first * shortcut.wide_map().line_bytes;
    return shortcut.pad(lines, skip + from, output(chunk) + lines.first * map.line_bytes);
  }
  const std::size_t begin = line_out(band) * line_bytes_out();
  std::memcpy(output(chunk) + begin, skip + begin, band.count * line_bytes_out());
}

/// The first line that a band reads.
const std::byte* BandedRunner::source(const Chunk& chunk, const Band& band) const {
  const std::size_t line = band.image * lines_.height + band.in_first;
  if (unit.input) return c.runners[*unit.input]->value(chunk) + line * line_bytes_in();
  const std::size_t values = lines_.width * lines_.in_channels;
  std::byte* pixels = c.lane_at(chunk.lane, pixels_);
  image_.values(line * values, band.in_count * values, pixels);
  return pixels;
}

}  // namespace lockstep::cpu
