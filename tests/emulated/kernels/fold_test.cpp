// A strided convolution over the image as one of stride 1: the image, the weights, their gradient.
#include "ports/cuda/kernels/image/fold.hpp"

#include <catch2/catch.hpp>
#include <cmath>

#include "tests/emulated/fixture.hpp"

using namespace lockstep;
using namespace lockstep::cuda;
using namespace lockstep::test;

namespace {

constexpr int images = 2;

std::size_t count(int number) { return static_cast<std::size_t>(number); }

Fold fold_of(int kernel, int stride, int channels, int padding) {
  Fold fold{.outputs = 3,
            .kernel = kernel,
            .stride = stride,
            .padding = padding,
            .height = 13,
            .width = 10,
            .channels = channels,
            .padded = (channels + 3) / 4 * 4};
  fold.out_height = (fold.height + 2 * padding - kernel) / stride + 1;
  fold.out_width = (fold.width + 2 * padding - kernel) / stride + 1;
  return fold;
}

std::vector<Fold> all_folds() {
  std::vector<Fold> folds;
  for (const int kernel : {3, 5, 7})
    for (const int stride : {2, 3})
      for (const int channels : {1, 3, 5})
        for (const int padding : {0, kernel / 2})
          folds.push_back(fold_of(kernel, stride, channels, padding));
  // Rows that a thread block makes in parts, of one size or not.
  folds.push_back(fold_of(7, 3, 60, 3));
  folds.push_back(fold_of(3, 2, 128, 1));
  return folds;
}

std::string describe(const Fold& f) {
  return "kernel " + std::to_string(f.kernel) + ", stride " + std::to_string(f.stride) +
         ", padding " + std::to_string(f.padding) + ", channels " + std::to_string(f.channels);
}

std::size_t folded_values(const Fold& f) {
  return images * f.folded_pixels() * count(f.folded_channels());
}
std::size_t folded_weights(const Fold& f) {
  return count(f.outputs * f.cells() * f.folded_channels());
}
std::size_t weights(const Fold& f) { return count(f.outputs * f.kernel * f.kernel * f.padded); }

/// Calls body(place in the folded image, place in the image or -1).
template <class Body>
void each_folded_value(const Fold& f, const Body& body) {
  std::size_t at = 0;
  for (int n = 0; n < images; ++n)
    for (int by = 0; by < f.folded_height(); ++by)
      for (int bx = 0; bx < f.folded_width(); ++bx)
        for (int q = 0; q < f.folded_channels(); ++q, ++at) {
          const int cell = q / f.cell_channels(), in_cell = q % f.cell_channels(),
                    sub = in_cell / f.channels, y = by * f.stride - f.padding + sub / f.stride,
                    x = (bx + cell) * f.stride - f.padding + sub % f.stride;
          const bool inside =
              sub < f.stride * f.stride && y >= 0 && y < f.height && x >= 0 && x < f.width;
          body(at, inside ? ((n * f.height + y) * f.width + x) * f.channels + in_cell % f.channels
                          : -1);
        }
}

/// As plain loops: x [images, height, width, x_channels], w [outputs, kernel height, kernel width,
/// w_channels].
struct Plain {
  int height, width, x_channels, w_channels, kernel_height, kernel_width, stride, padding;
};
std::vector<double> convolved(const Fold& f, const Plain& p, const std::vector<double>& x,
                              const std::vector<double>& w) {
  std::vector<double> out;
  for (int n = 0; n < images; ++n)
    for (int oy = 0; oy < f.out_height; ++oy)
      for (int ox = 0; ox < f.out_width; ++ox)
        for (int o = 0; o < f.outputs; ++o) {
          double sum = 0;
          for (int ky = 0; ky < p.kernel_height; ++ky)
            for (int kx = 0; kx < p.kernel_width; ++kx)
              for (int c = 0; c < p.x_channels; ++c) {
                const int y = oy * p.stride - p.padding + ky, at_x = ox * p.stride - p.padding + kx;
                if (y < 0 || y >= p.height || at_x < 0 || at_x >= p.width) continue;
                sum +=
                    x[count(((n * p.height + y) * p.width + at_x) * p.x_channels + c)] *
                    w[count(((o * p.kernel_height + ky) * p.kernel_width + kx) * p.w_channels + c)];
              }
          out.push_back(sum);
        }
  return out;
}

std::vector<double> some_weights(const Fold& f) {
  std::vector<double> w(weights(f));
  for (std::size_t i = 0; i < w.size(); ++i)
    if (i % count(f.padded) < count(f.channels)) w[i] = static_cast<double>(i * 7 % 31) - 15;
  return w;
}

}  // namespace

TEST_CASE("a folded image has the bits of the image, and zeros where it ends, every storage",
          "[kernel]") {
  for (const Fold& f : all_folds())
    for (const Storage storage : all_storages) {
      INFO(to_string(storage) << ", " << describe(f));
      const std::size_t pixels = images * f.image_pixels();
      std::vector<std::uint8_t> bytes(pixels * count(f.channels));
      std::vector<float> floats(bytes.size());
      for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::uint8_t>(i * 37 + 1);
        floats[i] = static_cast<float>(i * 91 % 257) / 100 - 1;
      }
      std::vector<float> scale, shift;
      for (int c = 0; c < f.channels; ++c) {
        scale.push_back((c % 3 == 2 ? -0.01f : 0.01f) * static_cast<float>(c + 1));
        shift.push_back(3 - 0.7f * static_cast<float>(c));
      }
      const ImageInput of_bytes{bytes.data(), pixels,       f.channels,
                                f.padded,     scale.data(), shift.data()};
      ImageInput of_floats = of_bytes;
      of_floats.pixels = floats.data();
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values a(storage, folded_values(f)), b(storage, folded_values(f));
        fold_elements(data::Element::u8, of_bytes, f, storage, a.data(), stream);
        fold_floats(of_floats, f, storage, b.data(), stream);
        return Outputs{a.read(), b.read()};
      });
      Values a(storage, pixels * count(f.padded)), b(storage, pixels * count(f.padded));
      CudaStream stream;
      normalise_elements(data::Element::u8, of_bytes, storage, a.data(), stream.get());
      convert_floats(of_floats, storage, b.data(), stream.get());
      stream.synchronize();
      const Outputs image = {a.read(), b.read()};
      std::size_t different = 0;
      each_folded_value(f, [&](std::size_t to, int from) {
        const int at = from < 0 ? 0 : from / f.channels * f.padded + from % f.channels;
        for (std::size_t i : {0u, 1u})
          different += got[i][to] == (from < 0 ? 0.0 : image[i][count(at)]) ? 0 : 1;
      });
      CHECK(different == 0);
    }
}

TEST_CASE("folded weights and images have the products of the strided convolution", "[kernel]") {
  for (const Fold& f : all_folds())
    for (const Storage storage : all_storages) {
      INFO(to_string(storage) << ", " << describe(f));
      std::vector<double> image(images * f.image_pixels() * count(f.channels)),
          folded_image(folded_values(f));
      for (std::size_t i = 0; i < image.size(); ++i)
        image[i] = static_cast<double>(i * 11 % 23) - 11;
      each_folded_value(f, [&](std::size_t to, int from) {
        if (from >= 0) folded_image[to] = image[count(from)];
      });
      const std::vector<double> w = some_weights(f);
      const Values from(storage, w);
      const Outputs got = in_every_order([&](cudaStream_t stream) {
        Values to(storage, folded_weights(f));
        fold_weights(from.data(), f, storage, to.data(), stream);
        return Outputs{to.read()};
      });
      const Plain strided{f.height, f.width,  f.channels, f.padded,
                          f.kernel, f.kernel, f.stride,   f.padding},
          folded{f.folded_height(),
                 f.folded_width(),
                 f.folded_channels(),
                 f.folded_channels(),
                 f.cells(),
                 1,
                 1,
                 0};
      CHECK(convolved(f, folded, folded_image, got[0]) == convolved(f, strided, image, w));
    }
}

TEST_CASE("unfolding a gradient inverts the folding of weights and drops what belongs to none",
          "[kernel]") {
  for (const Fold& f : all_folds())
    for (const Storage storage : all_storages)
      for (const bool accumulate : {false, true}) {
        INFO(to_string(storage) << ", " << describe(f) << (accumulate ? ", accumulated" : ""));
        const std::vector<double> w = some_weights(f), before = some_values(w.size(), 3),
                                  ones(w.size(), 1);
        const Values from(storage, w), all(storage, ones);
        const Outputs got = in_every_order([&](cudaStream_t stream) {
          Values folded(storage, folded_weights(f)), exists(storage, folded_weights(f)),
              to(Storage::fp32, before);
          fold_weights(from.data(), f, storage, folded.data(), stream);
          fold_weights(all.data(), f, storage, exists.data(), stream);
          std::vector<double> gradient = folded.read();
          const std::vector<double> is_weight = exists.read();
          for (std::size_t i = 0; i < gradient.size(); ++i)
            if (is_weight[i] == 0) gradient[i] = NAN;
          const Values spoiled(storage, gradient);
          unfold_gradient(spoiled.data(), f, storage, accumulate, to.floats(), stream);
          return Outputs{to.read()};
        });
        std::vector<double> want = w;
        const std::vector<double> old = rounded(Storage::fp32, before);
        for (std::size_t i = 0; i < want.size(); ++i)
          if (accumulate) want[i] = static_cast<float>(old[i] + want[i]);
        CHECK(got[0] == want);
      }
}
