#include <cstring>

#include <arm_neon.h>

#include "data/image/pixels/arm/pixel_sets.hpp"

namespace lockstep::data {
namespace {

struct Lanes {
  float32x4_t part[4];
  static Lanes zero() {
    const float32x4_t none = vdupq_n_f32(0);
    return {{none, none, none, none}};
  }
  static Lanes of_bytes(const std::uint8_t* from) {
    const uint8x16_t bytes = vld1q_u8(from);
    const uint16x8_t low = vmovl_u8(vget_low_u8(bytes)), high = vmovl_high_u8(bytes);
    return {{vcvtq_f32_u32(vmovl_u16(vget_low_u16(low))), vcvtq_f32_u32(vmovl_high_u16(low)),
             vcvtq_f32_u32(vmovl_u16(vget_low_u16(high))), vcvtq_f32_u32(vmovl_high_u16(high))}};
  }
  static Lanes of_floats(const float* from) {
    return {{vld1q_f32(from), vld1q_f32(from + 4), vld1q_f32(from + 8), vld1q_f32(from + 12)}};
  }
  void add(const Lanes& other, float weight) {
    for (int i = 0; i < 4; ++i) part[i] = vfmaq_n_f32(part[i], other.part[i], weight);
  }
  void scale_and_shift(float scale, float shift) {
    for (float32x4_t& some : part) some = vfmaq_n_f32(vdupq_n_f32(shift), some, scale);
  }
  void subtract(float number) {
    for (float32x4_t& some : part) some = vsubq_f32(some, vdupq_n_f32(number));
  }
  void store_quarters(float* to) const {
    for (std::size_t quarter = 0; quarter < 4; ++quarter)
      vst1q_f32(to + quarter * resample_lanes, part[quarter]);
  }
  uint8x16_t bytes() const {
    uint32x4_t whole[4];
    for (int i = 0; i < 4; ++i) whole[i] = vcvtq_u32_f32(part[i]);
    const uint16x8_t low = vcombine_u16(vmovn_u32(whole[0]), vmovn_u32(whole[1]));
    const uint16x8_t high = vcombine_u16(vmovn_u32(whole[2]), vmovn_u32(whole[3]));
    return vcombine_u8(vmovn_u16(low), vmovn_u16(high));
  }
  void store_bytes(std::uint8_t* to) const { vst1q_u8(to, bytes()); }
  // As x86's store_four(): four columns of four lines become four pixels of each line.
  static void store_lines(const Lanes (&columns)[4], std::size_t channels,
                          std::uint8_t* const (&to)[resample_lines], std::size_t at) {
    uint32x4_t pixels[4];
    for (int i = 0; i < 4; ++i) pixels[i] = vreinterpretq_u32_u8(columns[i].bytes());
    const uint8x16_t kept = vld1q_u8(resample_kept[channels].data());
    const auto pairs = [](uint32x4_t a, uint32x4_t b) {
      return vreinterpretq_u64_u32(vzip1q_u32(a, b));
    };
    const auto below = [](uint32x4_t a, uint32x4_t b) {
      return vreinterpretq_u64_u32(vzip2q_u32(a, b));
    };
    const uint64x2_t ab = pairs(pixels[0], pixels[1]), cd = pairs(pixels[2], pixels[3]);
    const uint64x2_t ab_below = below(pixels[0], pixels[1]), cd_below = below(pixels[2], pixels[3]);
    const uint64x2_t lines[resample_lines] = {vzip1q_u64(ab, cd), vzip2q_u64(ab, cd),
                                              vzip1q_u64(ab_below, cd_below),
                                              vzip2q_u64(ab_below, cd_below)};
    for (std::size_t line = 0; line < resample_lines; ++line)
      vst1q_u8(to[line] + at, vqtbl1q_u8(vreinterpretq_u8_u64(lines[line]), kept));
  }
};

#include "data/image/pixels/resample_kernels.inc"

}  // namespace

const ResampleKernels resample_neon = {blend_lines, blend_columns};

}  // namespace lockstep::data
