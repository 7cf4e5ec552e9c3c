#pragma once

#include <map>

#include "ports/cpu/plan/lowering.hpp"
#include "ports/cpu/runner.hpp"
#include "ports/cpu/units/conv/conv_runner.hpp"

namespace lockstep::cpu {

/// Copies images [rows, height, width, channels] between the two sides of an option-A shortcut:
/// every stride-th pixel of the wide side to or from the middle channels of the deep side.
/// Everything else becomes zero.
class Shortcut {
 public:
  /// That of `unit`, which has `pad`, for this chunk.
  Shortcut(const Context& context, const Unit& unit, const Chunk& chunk);
  void pad(const std::byte* wide, std::byte* deep) const;
  /// Some lines of one image; both begin with the batch's first image.
  void pad(const Band& band, const std::byte* wide, std::byte* deep) const;
  void unpad(const std::byte* deep, std::byte* wide) const;

 private:
  template <class Copy>
  void each_pixel(const Copy& copy) const;
  template <class Copy>
  void each_pixel_of_line(std::size_t image, std::size_t line, const Copy& copy) const;
  std::size_t line_bytes() const { return to_.width * to_.channels * value_bytes_; }

  nn::Shape from_, to_;
  std::size_t rows_, stride_, value_bytes_;
};

/// Training's relu(bn(conv) [+ skip]). A point with a place in a region is run by the region, any
/// other by its only reader: that asks for value(), writes the gradient of the value to gradient()
/// and calls backward().
class PointRunner final : public Runner {
 public:
  PointRunner(Context& context, std::size_t number) : Runner(context, number) {}
  void plan() override;
  void bind() override;
  void before_forward(std::size_t lane) override;
  void forward(const Chunk& chunk) override;
  void recompute(const Chunk& chunk) override;
  void backward(const Chunk& chunk) override;
  const std::byte* value(const Chunk& chunk) override;
  const std::byte* input_gradient(const Chunk& chunk) override;

  /// The gradient after the sum, already zero where the ReLU was: batch norm and skip receive it.
  std::byte* gradient(const Chunk& chunk) const { return c.at(g_) + chunk.before(image_bytes_); }

 private:
  std::byte* output(const Chunk& chunk) const;
  const std::byte* skip_value(const Chunk& chunk);
  ConvRunner& main() const { return static_cast<ConvRunner&>(*c.runners[*unit.input]); }
  ConvRunner* skip_conv() const;
  std::size_t values_of(const Chunk& chunk) const {
    return chunk.share(shape_.height * shape_.width);
  }

  nn::Shape shape_;
  bool kept_ = true;
  std::size_t image_bytes_ = 0;
  std::size_t z_ = 0, g_ = 0;  // buffers
  /// For a value that is not kept: offsets in the scratch of each region that reads it.
  std::map<std::size_t, std::size_t> places_;
  std::size_t padded_ = 0,
              unpadded_ =
                  0;  // scratch of an option-A shortcut, here and in the region of its source
};

}  // namespace lockstep::cpu
