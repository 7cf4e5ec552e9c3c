#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

/// An image of 1 or 3 channels that is changed in place: [height, width, channels].
struct Canvas {
  std::uint8_t* pixels = nullptr;
  std::size_t height = 0, width = 0, channels = 0;
  std::size_t count() const { return height * width; }
  std::size_t bytes() const { return count() * channels; }
};

// torchvision's operations on uint8 tensors, equal in every level (names in
// torchvision.transforms.functional in brackets). All are pure and give the same bits on every
// processor. A ratio of 1 changes nothing; a ratio of 0 leaves only the other image of the blend.

void adjust_brightness(const Canvas& image, double ratio);  ///< with black
void adjust_contrast(const Canvas& image, double ratio);    ///< with the mean of the grey levels
void adjust_saturation(const Canvas& image, double ratio);  ///< with the grey image
void adjust_hue(const Canvas& image, double by);  ///< by: -1/2 to 1/2 of the circle; grey stays
/// Blends with a blurred image, whose edge is the image itself. `scratch` grows as needed.
void adjust_sharpness(const Canvas& image, double ratio, std::vector<std::uint8_t>& scratch);
void posterise(const Canvas& image, int bits);         ///< keeps the highest `bits`, 0 to 8
void solarise(const Canvas& image, double threshold);  ///< inverts levels from the threshold on
void stretch_contrast(const Canvas& image);            ///< each channel to 0 .. 255 [autocontrast]
void equalise(const Canvas& image);                    ///< each channel's histogram

/// For each level: value * share + other * (1 - share), rounded to the nearest level.
void mix(std::uint8_t* values, const std::uint8_t* others, std::size_t count, float share);

/// Where a pixel of the result comes from: (x, y) as given, pixel centres at halves.
struct Affine {
  double xx = 1, xy = 0, x0 = 0;  ///< x' = xx * x + xy * y + x0
  double yx = 0, yy = 1, y0 = 0;  ///< y' = yx * x + yy * y + y0
};
/// Each pixel becomes the nearest pixel to its place of origin, or black if that is outside.
void warp(const Canvas& image, const Affine& from, std::vector<std::uint8_t>& scratch);

Affine shear_x(double by);  ///< around the upper left corner
Affine shear_y(double by);
Affine translation(int right, int down);
/// Counterclockwise around the middle.
Affine rotation(double degrees, std::size_t height, std::size_t width);

}  // namespace lockstep::data
