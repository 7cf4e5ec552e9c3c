// How fast one core casts, adds and selects vectors, and makes PowerSGD's products of a matrix:
//
//     build/bench/vectors [megabytes of floats]
//
// GB/s of floats: the bytes of the vector as f32, per second. The best of some rounds.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <functional>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/clock.hpp"

using namespace lockstep;
using backend::Vector;
using comm::ElementType;

namespace {

double best_s(const std::function<void()>& work) {
  double best = 1e9;
  for (int round = 0; round < 20; ++round) {
    const double began_s = now_s();
    work();
    best = std::min(best, now_s() - began_s);
  }
  return best;
}

/// What PowerSGD does with a gradient of ResNet-50's largest convolutions, without its sums.
class PowerSgdStep {
 public:
  PowerSgdStep(backend::Vectors& vectors, const nn::MatrixForm& form, std::size_t width)
      : vectors_(vectors),
        form_(form),
        width_(width),
        memory_(vectors.allocate((2 * size() + width * (form.rows + form.columns)) * sizeof(float),
                                 "a matrix")) {
    for (std::size_t i = 0; i < 2 * size() + width * (form.rows + form.columns); ++i)
      at(0)[i] = backend::arithmetic::stand_in(0, i);
  }
  std::size_t size() const { return form_.rows * form_.columns; }
  void run() {
    const backend::Matrix error{at(size()), form_}, gradient{at(0), form_};
    const backend::Thin rows{at(2 * size()), form_.rows, width_};
    const backend::Thin columns{at(2 * size() + width_ * form_.rows), form_.columns, width_};
    vectors_.add(1, backend::vector(gradient.data, size()), backend::vector(error.data, size()));
    vectors_.multiply(error, columns, rows);
    vectors_.orthogonalise(rows);
    vectors_.multiply_transposed(error, rows, columns);
    vectors_.add_product(1, -1, rows, columns, error);
    vectors_.add_product(0, 1, rows, columns, gradient);
  }

 private:
  float* at(std::size_t i) const { return reinterpret_cast<float*>(memory_.get()) + i; }
  backend::Vectors& vectors_;
  const nn::MatrixForm form_;
  const std::size_t width_;
  backend::DeviceMemory memory_;
};

}  // namespace

int main(int count_of_arguments, char** arguments) {
  const double megabytes = count_of_arguments > 1 ? std::atof(arguments[1]) : 25;
  const auto count = static_cast<std::size_t>(megabytes * 1e6 / sizeof(float));
  const auto backend = backend::make_cpu_backend({});
  backend::Vectors& vectors = backend->vectors();
  const auto floats = vectors.allocate(count * sizeof(float), "floats"),
             more = vectors.allocate(count * sizeof(float), "more floats"),
             small = vectors.allocate(count * sizeof(float), "another format"),
             scales = vectors.allocate(backend::scales_of(count) * sizeof(float), "scales"),
             largest = vectors.allocate(sizeof(float), "the largest");
  auto* found = reinterpret_cast<float*>(largest.get());
  const Vector from = backend::vector(reinterpret_cast<float*>(floats.get()), count),
               to = backend::vector(reinterpret_cast<float*>(more.get()), count);
  for (std::size_t i = 0; i < count; ++i)
    static_cast<float*>(from.data)[i] = static_cast<float>(i * 7919 % 20011) / 20011 - 0.5f;
  const auto line = [&](const char* what, const std::function<void()>& work) {
    fmt::print("{:24} {:6.2f} GB/s\n", what, megabytes / 1e3 / best_s(work));
  };
  fmt::print("{}, {} MB of floats\n", backend->description(), megabytes);
  const struct {
    ElementType type;
    const char *there, *back;
  } formats[] = {{ElementType::f32, "f32 to f32", "f32 from f32"},
                 {ElementType::f16, "f32 to f16", "f16 to f32"},
                 {ElementType::bf16, "f32 to bf16", "bf16 to f32"},
                 {ElementType::i8, "f32 to i8", "i8 to f32"}};
  for (const auto& format : formats) {
    const Vector other{small.get(), count, format.type, reinterpret_cast<float*>(scales.get())};
    line(format.there, [&] { vectors.cast(from, other); });
    line(format.back, [&] { vectors.cast(other, to); });
  }
  line("add", [&] { vectors.add(0.5f, from, to); });
  line("scale", [&] { vectors.scale(0.999f, to); });
  line("largest", [&] { vectors.largest(from, found); });
  line("select", [&] { vectors.select(to, 0.01f, found); });
  for (const std::size_t panel : {16, 1})
    for (const std::size_t width : {1, 2, 4, 8}) {
      PowerSgdStep step(vectors, {512, 4608, panel, panel * 4608, panel}, width);
      const double s = best_s([&] { step.run(); });
      fmt::print("{:24} {:6.2f} GB/s\n", fmt::format("PowerSGD {}, panels of {}", width, panel),
                 static_cast<double>(step.size() * sizeof(float)) / 1e9 / s);
    }
}
