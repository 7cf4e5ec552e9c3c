#pragma once

#include <cstddef>
#include <cstdint>

#include "lockstep/data/batch.hpp"
#include "lockstep/data/box.hpp"

namespace lockstep::data {

/// mixup (Zhang et al. 2018) and CutMix (Yun et al. 2019), as in torchvision's references. When
/// both are on, each batch takes one of them at random, with equal chance.
struct MixSpec {
  float mixup = 0,
        cutmix = 0;  ///< alpha; the share is drawn from Beta(alpha, alpha); 0: off
  std::uint64_t seed = 1;
  bool any() const { return mixup > 0 || cutmix > 0; }
};

/// What happens to all rows of one batch.
struct Mix {
  float share = 1;  ///< of the row's image; the rest is its partner's
  Box box;          ///< CutMix: pasted from the partner; empty: mixup
  bool is_cut() const { return box.height > 0 && box.width > 0; }
};

/// The same on every rank: a pure function of (spec.seed, epoch, batch).
Mix draw_mix(const MixSpec& spec, std::uint64_t epoch, std::uint64_t batch, std::size_t height,
             std::size_t width);

/// Mixes every row of [rows, height, width, channels] with the one before it, the first with the
/// last; in place. Levels are rounded to the nearest, which changes a pixel by less than 1/510 of
/// its range. label_a becomes the label of the larger share. REQUIRES: mixup only of uint8; CutMix
/// moves whole pixels, of any element.
void mix_rows(const Mix& mix, std::size_t rows, std::size_t height, std::size_t width,
              std::size_t pixel_bytes, std::uint8_t* images, Target* targets);

/// Mixes Batch::wanted [rows, outputs] in the same way: shares of both rows' numbers, not known
/// where one of them is not.
void mix_wanted(const Mix& mix, std::size_t rows, std::size_t outputs, float* wanted);

}  // namespace lockstep::data
