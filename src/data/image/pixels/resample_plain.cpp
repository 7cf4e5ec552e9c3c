#include <cstring>

#include "data/image/pixels/resample_kernels.hpp"

namespace lockstep::data {
namespace {

struct Lanes {
  float number[resample_lanes];
  static Lanes zero() { return {}; }
  static Lanes of_bytes(const std::uint8_t* from) {
    Lanes lanes;
    for (std::size_t i = 0; i < resample_lanes; ++i) lanes.number[i] = from[i];
    return lanes;
  }
  static Lanes of_floats(const float* from) {
    Lanes lanes;
    std::memcpy(lanes.number, from, sizeof lanes.number);
    return lanes;
  }
  void add(const Lanes& other, float weight) {
    for (std::size_t i = 0; i < resample_lanes; ++i) number[i] += other.number[i] * weight;
  }
  void scale_and_shift(float scale, float shift) {
    for (float& value : number) value = value * scale + shift;
  }
  void subtract(float value) {
    for (float& mine : number) mine -= value;
  }
  void store_quarters(float* to) const {
    for (std::size_t quarter = 0; quarter < 4; ++quarter)
      std::memcpy(to + quarter * resample_lanes, number + 4 * quarter, 4 * sizeof(float));
  }
  void store_bytes(std::uint8_t* to) const {
    for (std::size_t i = 0; i < resample_lanes; ++i)
      to[i] = static_cast<std::uint8_t>(static_cast<int>(number[i]));
  }
  template <std::size_t some>
  static void store_lines(const Lanes (&columns)[some], std::size_t channels,
                          std::uint8_t* const (&to)[resample_lines], std::size_t at) {
    for (std::size_t i = 0; i < some; ++i) {
      std::uint8_t bytes[resample_lanes];
      columns[i].store_bytes(bytes);
      for (std::size_t line = 0; line < resample_lines; ++line)
        std::memcpy(to[line] + at + i * channels, bytes + line * resample_pixel, resample_pixel);
    }
  }
};

#include "data/image/pixels/resample_kernels.inc"

}  // namespace

const ResampleKernels resample_plain = {blend_lines, blend_columns};

}  // namespace lockstep::data
