#include "ports/cpu/units/conv/banded_runner.hpp"

#include <algorithm>
#include <cstring>

#include "ports/cpu/units/shortcut.hpp"

namespace lockstep::cpu {

using dnnl::memory;

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
  const ConvGeometry geometry = lines_.on(band);
  if (format_.is_zero()) {
    const memory::desc any(geometry.weight_dims(), geometry.source(1).data_type(),
                           memory::format_tag::any);
    format_ = direct_desc(geometry, any, 1).weights_desc();
  }
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
  if (unit.pad) return Shortcut(c, unit, chunk).pad(band, skip, output(chunk));
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
