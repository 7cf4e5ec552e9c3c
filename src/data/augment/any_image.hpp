#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lockstep/data/augment/augment.hpp"

namespace lockstep::data {

// Changes that suit images of any element and any number of channels: they compute nothing. Their
// draws are pure functions of (spec.seed, epoch, row).

/// One of the eight symmetries of a square: lines and columns change places, then the image is
/// mirrored downwards and across.
struct Symmetry {
  bool transposed = false, down = false, across = false;
};
/// Each as often.
Symmetry symmetry(const AugmentSpec& spec, std::uint64_t epoch, std::size_t row);
/// `image`: [side, side] pixels of that many bytes. `scratch` keeps its memory between calls.
void turn(const Symmetry& how, std::size_t side, std::size_t pixel_bytes, std::uint8_t* image,
          std::vector<std::uint8_t>& scratch);

/// The channels that lose their values: each with the probability spec.channel_dropout, but one
/// stays.
std::vector<std::size_t> dropped_channels(const AugmentSpec& spec, std::uint64_t epoch,
                                          std::size_t row, std::size_t channels);
/// They get the values of the pixel `fill`, which gives the bytes of an element.
void drop_channels(std::span<const std::size_t> dropped, std::span<const std::uint8_t> fill,
                   std::size_t element_bytes, std::size_t pixels, std::uint8_t* image);

}  // namespace lockstep::data
