#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "ports/cuda/kernels/kernels.hpp"
#include "ports/cuda/plan/engines/conv_engines.hpp"

namespace lockstep::test::steps {

using Numbers = std::vector<double>;

/// How numbers are stored on the device. bits: 0 or 1, eight in a byte.
enum class Form { fp32, bf16, fp16, bytes, bits };
Form form_of(cuda::Storage storage);

/// Numbers in the device's memory.
struct Stored {
  void* at = nullptr;
  std::size_t count = 0;
  Form form = Form::fp32;
};
/// The device must have done the work that makes or reads them.
Numbers read(const Stored& from);
void write(const Stored& to, const Numbers& numbers);
/// As they are after write() and read().
Numbers rounded(Form form, Numbers numbers);

/// The largest share of a number that storing it changes; 0 for whole numbers.
double rounding(Form form);

/// Numbers, and the largest magnitudes that were added up to each.
struct Sums {
  Numbers value, size;
  Sums() = default;
  explicit Sums(std::size_t count) : value(count), size(count) {}
  explicit Sums(Numbers exact);
  void add(std::size_t i, double v, double magnitude) {
    value[i] += v;
    size[i] += magnitude;
  }
};

/// A convolution's passes in double precision, product by product. Weights are [outputs, kernel
/// pixels, channels].
Sums forward(const cuda::ConvShape& shape, const Sums& x, const Sums& w);
Sums data_gradient(const cuda::ConvShape& shape, const Sums& w, const Sums& y);
Sums weight_gradient(const cuda::ConvShape& shape, const Sums& x, const Sums& y);

/// What one step must leave in one place.
struct Output {
  std::string step, what;
  Stored where;
  Numbers want, allowed;  ///< by number: how far it may be from `want`
};
/// Of sums that are stored in 16 bits, or were on their way: two roundings of the sum, and a
/// quarter of one of all that was added up, since an engine may round on its way. Of those in 32
/// bits: 64 roundings of all that was added up. `more`: what is allowed in addition, by number.
Output output(const std::string& step, const std::string& what, const Stored& where, Sums want,
              const Numbers& more = {}, std::optional<Form> on_the_way = {});

/// The largest error of the output in what is allowed: above 1, the step is wrong. A NaN is above
/// 1.
double error(const Output& output);
/// Makes all of the output's numbers wrong by one part in 16, and whole ones by 1.
void spoil(const Output& output);

}  // namespace lockstep::test::steps
