// How fast one core casts, adds and selects vectors:
//
//     build/bench/vectors [megabytes of floats]
//
// GB/s of floats: the bytes of the vector as f32, per second. The best of some rounds.
#include <fmt/core.h>

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
}
