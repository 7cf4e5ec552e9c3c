#pragma once

#include <compare>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace lockstep::backend {

/// Before the choice in a backend's description: the same machine may choose differently each time.
constexpr std::string_view winograd_mark = ", Winograd ";

/// A convolution of 3 x 3 with stride 1 and padding 1: its channels and the size of its images.
struct WinogradShape {
  std::size_t in = 0, out = 0, height = 0, width = 0;
  auto operator<=>(const WinogradShape&) const = default;
};

/// The passes of one convolution that use Winograd's algorithm.
struct WinogradPasses {
  bool forward = false, data_gradient = false, weight_gradient = false;
  bool any() const { return forward || data_gradient || weight_gradient; }
  bool operator==(const WinogradPasses&) const = default;
};

/// Which convolutions of a program use Winograd's minimal filtering (CPU backend): a quarter to
/// half of the multiplications, and other bits. Its errors are some times as large as those of a
/// direct convolution in fp32. In bf16 with 64 channels or more they are about twice as large,
/// those of weight gradients some thousandths; with fewer channels it computes in fp32. The bits of
/// a training depend on this choice, so a run saves it.
struct Winograd {
  enum class Mode {
    never,
    everywhere,  ///< all that it fits
    automatic,   ///< not decided: a training measures; a program takes it as everywhere
    listed
  };
  Mode mode = Mode::never;
  std::map<WinogradShape, WinogradPasses> list;  ///< listed: the shapes with a pass that uses it
  WinogradPasses passes(const WinogradShape& shape) const;
  bool decided() const { return mode != Mode::automatic; }
};

/// "auto", "true", "false", or a list like "64x64@56x56:fdw,128x128@28x28:fw": in x out channels @
/// height x width, then the passes: forward, data gradient, weight gradient. Throws InputError
/// naming `key` and the part that is wrong.
Winograd parse_winograd(const std::string& text, const std::string& key);
std::string to_string(const Winograd& winograd);  ///< what parse_winograd() reads

}  // namespace lockstep::backend
