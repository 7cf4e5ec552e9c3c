#pragma once

#include <map>

#include "ports/cpu/plan/lowering.hpp"
#include "ports/cpu/runner.hpp"
#include "ports/cpu/units/conv/conv_runner.hpp"

namespace lockstep::cpu {

/// Copies lines of images [line, width, channels] between the two sides of an option-A shortcut:
/// every stride-th pixel of the wide side to or from the middle channels of the deep side.
/// Everything else becomes zero.
class Shortcut {
 public:
  /// That of `unit`, which has `pad`. `deep`: its maps, in the buffer that is unpadded.
  Shortcut(const Context& context, const Unit& unit, const Map& deep);
  /// The wide lines that some deep lines read.
  nn::LineRange wide_lines(const nn::LineRange& deep) const;
  const Map& wide_map() const { return from_; }
  /// Both sides begin with the first line that is read or written.
  void pad(const nn::LineRange& lines, const std::byte* wide, std::byte* deep) const;
  /// The deep side begins with the batch's first line.
  void unpad(const nn::LineRange& lines, const std::byte* deep, std::byte* wide) const;

 private:
  std::size_t wide_line(std::size_t deep) const;
  template <class Copy>
  void each_pixel(const Copy& copy) const;

  Map from_, to_;
  std::size_t stride_, value_bytes_;
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
  void plan_messages() override;
  using Runner::value;
  const std::byte* value(const Chunk& chunk, const nn::LineRange& lines) override;
  const std::byte* input_gradient(const Chunk& chunk) override;

  /// The gradient after the sum, already zero where the ReLU was: batch norm and skip receive it.
  std::byte* gradient(const nn::LineRange& lines) const {
    return c.at(g_) + gradient_map_.offset(lines);
  }

 private:
  void plan_places();
  void make(const Chunk& chunk, const nn::LineRange& lines);
  std::byte* output(const Chunk& chunk, const nn::LineRange& lines) const;
  const std::byte* skip_value(const Chunk& chunk, const nn::LineRange& lines);
  ConvRunner& main() const { return static_cast<ConvRunner&>(*c.runners[*unit.input]); }
  ConvRunner* skip_conv() const;

  Map gradient_map_;
  bool kept_ = true;
  std::size_t z_ = 0, g_ = 0;  // buffers
  /// For a value that is not kept: offsets in the scratch of each region that reads it.
  std::map<std::size_t, std::size_t> places_;
  std::size_t padded_ = 0,
              unpadded_ =
                  0;  // scratch of an option-A shortcut, here and in the region of its source
};

}  // namespace lockstep::cpu
