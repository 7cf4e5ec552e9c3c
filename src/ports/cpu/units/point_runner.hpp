#pragma once

#include <map>

#include "ports/cpu/units/conv/conv_runner.hpp"

namespace lockstep::cpu {

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
