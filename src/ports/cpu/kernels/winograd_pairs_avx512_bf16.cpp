#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "ports/cpu/kernels/winograd.hpp"

#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx512bf16,fma")

// F(2 x 2, 3 x 3) with products of bf16; see winograd.hpp.
namespace lockstep::cpu {
namespace {
#include "ports/cpu/kernels/vector.inc"

#include "ports/cpu/kernels/bf16.inc"

constexpr std::size_t planes = 16, panel_width = winograd_width;
constexpr int most_rows = 14, gradient_rows = 8, panel_vectors = panel_width / 16;

/// Two bf16 that are multiplied together: the even one below.
using Pair = std::uint32_t;

struct Line {
  v16 v[4];
};
/// B^T d, of one column or row of inputs
INLINE Line input_line(v16 a, v16 b, v16 c, v16 d) { return {{a - c, b + c, c - b, b - d}}; }
/// A y, of one column or row of outputs' gradients
INLINE Line output_line(v16 a, v16 b) { return {{a, a + b, a - b, -b}}; }
/// G g, of one column or row of weights
INLINE Line weight_line(v16 a, v16 b, v16 c) {
  const v16 even = splat(0.5f) * (a + c), odd = splat(0.5f) * b;
  return {{a, even + odd, even - odd, c}};
}

INLINE i16 rounded(v16 v) {
  return (i16)_mm512_maskz_cvtepu16_epi32(0xffff, (__m256i)_mm512_cvtneps_pbh((__m512)v));
}
INLINE void store_pairs(Pair* to, v16 even, v16 odd) {
  _mm512_storeu_si512(to, (__m512i)(rounded(even) | rounded(odd) << 16));
}

/// The images [rows, height, width, channels] of one side of a convolution, as tiles of 2 x 2.
struct Tiles {
  INLINE Tiles(const WinogradImages& images, std::size_t channels_)
      : height(images.height),
        width(images.width),
        channels(channels_),
        across((width + 1) / 2),
        each(across * ((height + 1) / 2)) {}
  static constexpr std::size_t none = ~std::size_t{0};
  template <int size, int border, class Body>
  INLINE void pixels(std::size_t tile, const Body& body) const {
    const std::size_t image = tile / each, place = tile % each;
    const std::ptrdiff_t top = static_cast<std::ptrdiff_t>(place / across * 2) - border,
                         left = static_cast<std::ptrdiff_t>(place % across * 2) - border;
    for (int y = 0; y < size; ++y)
      for (int x = 0; x < size; ++x) {
        const std::size_t py = static_cast<std::size_t>(top + y),
                          px = static_cast<std::size_t>(left + x);
        const bool inside = py < height && px < width;  // a negative one is large without its sign
        body(y * size + x, inside ? ((image * height + py) * width + px) * channels : none);
      }
  }
  std::size_t height, width, channels, across, each;
};

alignas(64) const float zeros[winograd_most_channels] = {};

/// The distances of tiles and of planes, in bf16.
struct Plane {
  Plane(std::size_t tiles, std::size_t channels) : row(channels + 32), size(tiles * row + 32) {}
  std::size_t row, size;
};

/// All 16 planes of one tile's inputs, for 16 channels.
struct Square {
  v16 v[16];
};
INLINE Square input_square(const bf16* const (&from)[16], std::size_t c) {
  Line lines[4];
  for (int j = 0; j < 4; ++j)
    lines[j] = input_line(load(from[j] + c), load(from[4 + j] + c), load(from[8 + j] + c),
                          load(from[12 + j] + c));
  Square s;
  for (int i = 0; i < 4; ++i) {
    const Line l = input_line(lines[0].v[i], lines[1].v[i], lines[2].v[i], lines[3].v[i]);
    for (int j = 0; j < 4; ++j) s.v[i * 4 + j] = l.v[j];
  }
  return s;
}
INLINE Square output_square(const bf16* const (&from)[4], std::size_t c) {
  Line lines[2];
  for (int j = 0; j < 2; ++j) lines[j] = output_line(load(from[j] + c), load(from[2 + j] + c));
  Square s;
  for (int i = 0; i < 4; ++i) {
    const Line l = output_line(lines[0].v[i], lines[1].v[i]);
    for (int j = 0; j < 4; ++j) s.v[i * 4 + j] = l.v[j];
  }
  return s;
}

template <int size, int border>
INLINE void find(const Tiles& tiles, const bf16* x, std::size_t tile,
                 const bf16* (&from)[static_cast<std::size_t>(size * size)]) {
  const auto* outside = reinterpret_cast<const bf16*>(zeros);
  tiles.pixels<size, border>(
      tile, [&](int k, std::size_t at) { from[k] = at == Tiles::none ? outside : x + at; });
}

/// V = B^T d B of `count` tiles from `first` on: [planes][tiles][channels].
void input_tiles(const Tiles& tiles, const bf16* x, std::size_t first, std::size_t count,
                 bf16* to) {
  const Plane plane(count, tiles.channels);
  for (std::size_t t = 0; t < count; ++t) {
    const bf16* from[16];
    find<4, 1>(tiles, x, first + t, from);
    for (std::size_t c = 0; c < tiles.channels; c += 16) {
      const Square s = input_square(from, c);
      for (std::size_t p = 0; p < planes; ++p)
        store(to + p * plane.size + t * plane.row + c, s.v[p]);
    }
  }
}

/// y = A^T m A of `count` tiles from `first` on, for `width` channels.
void output_tiles(const Tiles& tiles, const float* m, std::size_t first, std::size_t count,
                  std::size_t width, bf16* y) {
  const std::size_t plane = count * width + 16;
  for (std::size_t t = 0; t < count; ++t) {
    std::size_t to[4];
    tiles.pixels<2, 0>(first + t, [&](int k, std::size_t at) { to[k] = at; });
    for (std::size_t c = 0; c < width; c += 16) {
      const float* from = m + t * width + c;
      v16 lines[2][4];
      for (std::size_t j = 0; j < 4; ++j) {
        const auto at = [&](std::size_t i) { return load(from + (i * 4 + j) * plane); };
        lines[0][j] = at(0) + at(1) + at(2);
        lines[1][j] = at(1) - at(2) - at(3);
      }
      for (int i = 0; i < 2; ++i) {
        const v16(&l)[4] = lines[i];
        if (to[i * 2] != Tiles::none) store(y + to[i * 2] + c, l[0] + l[1] + l[2]);
        if (to[i * 2 + 1] != Tiles::none) store(y + to[i * 2 + 1] + c, l[1] - l[2] - l[3]);
      }
    }
  }
}

/// The distance between the planes of a panel of U: [planes][in / 2][width], in pairs.
INLINE std::size_t panel_plane(std::size_t in, std::size_t width) { return in / 2 * width + 16; }

/// U = G g G^T of one input and 16 outputs; taps are `step` floats apart.
INLINE Square weight_square(const float* g) {
  Line lines[3];
  for (int x = 0; x < 3; ++x)
    lines[x] = weight_line(load(g + x * 256), load(g + (3 + x) * 256), load(g + (6 + x) * 256));
  Square s;
  for (int i = 0; i < 4; ++i) {
    const Line l = weight_line(lines[0].v[i], lines[1].v[i], lines[2].v[i]);
    for (int j = 0; j < 4; ++j) s.v[i * 4 + j] = l.v[j];
  }
  return s;
}

/// The weights of 16 x 16 channels [9][in][out], turned into those of a data gradient.
void rotate_block(const float* from, float* to) {
  for (std::size_t tap = 0; tap < 9; ++tap)
    for (std::size_t a = 0; a < 16; ++a)
      for (std::size_t b = 0; b < 16; ++b)
        to[(8 - tap) * 256 + b * 16 + a] = from[tap * 256 + a * 16 + b];
}

/// One panel of U: `width` outputs from `first` on.
void weight_panel(const WinogradChannels& channels, const float* weights, std::size_t first,
                  std::size_t width, Pair* panel) {
  const std::size_t plane = panel_plane(channels.in, width);
  for (std::size_t k = 0; k < channels.in; k += 16)
    for (std::size_t n = 0; n < width; n += 16) {
      const std::size_t in = k / 16, out = (first + n) / 16;
      const std::size_t block =
          channels.rotated ? in * (channels.out / 16) + out : out * (channels.in / 16) + in;
      const float* g = weights + block * 9 * 256;
      alignas(64) float block_of_g[9 * 256];
      if (channels.rotated)
        rotate_block(g, block_of_g);
      else
        std::copy_n(g, 9 * 256, block_of_g);
      for (std::size_t i = 0; i < 16; i += 2) {
        const Square even = weight_square(block_of_g + i * 16),
                     odd = weight_square(block_of_g + (i + 1) * 16);
        for (std::size_t p = 0; p < planes; ++p)
          store_pairs(panel + p * plane + (k + i) / 2 * width + n, even.v[p], odd.v[p]);
      }
    }
}

void transform_weights(const WinogradChannels& channels, const float* weights, std::size_t part,
                       std::size_t parts, float* u) {
  const std::size_t panels = (channels.out + panel_width - 1) / panel_width;
  for (std::size_t p = part; p < panels; p += parts) {
    const std::size_t first = p * panel_width;
    weight_panel(channels, weights, first, std::min(panel_width, channels.out - first),
                 reinterpret_cast<Pair*>(u) + p * planes * panel_plane(channels.in, panel_width));
  }
}

INLINE v16 dot(v16 sum, Pair x, __m512i w) {
  return (v16)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(static_cast<int>(x)),
                               (__m512bh)w);
}

/// c [R, 16 V] = a [R, 2 pairs] * b [pairs, 16 V]; c's rows follow each other. a_row: in pairs.
template <int R, int V>
void product_block(const Pair* a, std::size_t a_row, const Pair* b, std::size_t pairs, float* c) {
  v16 sum[R][V] = {};
  for (std::size_t k = 0; k < pairs; ++k, b += 16 * V) {
    __m512i w[V];
    for (int v = 0; v < V; ++v) w[v] = _mm512_loadu_si512(b + 16 * v);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v)
        sum[r][v] = dot(sum[r][v], a[static_cast<std::size_t>(r) * a_row + k], w[v]);
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(c + 16 * (r * V + v), sum[r][v]);
}

using ProductBlock = void (*)(const Pair*, std::size_t, const Pair*, std::size_t, float*);
template <int V, int... rows>
constexpr ProductBlock product_block_of(std::size_t r, std::integer_sequence<int, rows...>) {
  constexpr ProductBlock all[] = {product_block<rows + 1, V>...};
  return all[r - 1];
}

void products(const Pair* a, std::size_t a_row, std::size_t tiles, const Pair* b, std::size_t pairs,
              std::size_t width, float* c) {
  const std::size_t blocks = (tiles + most_rows - 1) / most_rows;
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t from = tiles * i / blocks, rows = tiles * (i + 1) / blocks - from;
    constexpr std::make_integer_sequence<int, most_rows> all;
    const ProductBlock block =
        width == 16 ? product_block_of<1>(rows, all) : product_block_of<panel_vectors>(rows, all);
    block(a + from * a_row, a_row, b, pairs, c + from * width);
  }
}

void convolve(const WinogradImages& images, const void* x, const WinogradChannels& channels,
              const WinogradWeights& weights, void* y, const WinogradScratch& scratch) {
  const Tiles in(images, channels.in), out(images, channels.out);
  const std::size_t all = images.rows * in.each, most = scratch.tiles;
  const std::size_t blocks = (all + most - 1) / most;
  for (std::size_t i = 0; i < blocks; ++i) {
    const std::size_t first = all * i / blocks, count = all * (i + 1) / blocks - first;
    auto* v = reinterpret_cast<bf16*>(scratch.values);
    input_tiles(in, static_cast<const bf16*>(x), first, count, v);
    const Plane plane(count, channels.in);
    float* m = scratch.values + planes * plane.size / 2;
    for (std::size_t n = 0; n < channels.out; n += panel_width) {
      const std::size_t width = std::min(panel_width, channels.out - n), depth = channels.in;
      auto* own = reinterpret_cast<Pair*>(scratch.panel);
      const Pair* panel = own;
      if (weights.transformed)
        panel = reinterpret_cast<const Pair*>(weights.transformed) +
                n / panel_width * planes * panel_plane(depth, panel_width);
      else
        weight_panel(channels, weights.plain, n, width, own);
      for (std::size_t p = 0; p < planes; ++p)
        products(reinterpret_cast<const Pair*>(v + p * plane.size), plane.row / 2, count,
                 panel + p * panel_plane(depth, width), depth / 2, width,
                 m + p * (count * width + 16));
      output_tiles(out, m, first, count, width, static_cast<bf16*>(y) + n);
    }
  }
}

/// Planes of pairs of tiles: [planes][pairs of tiles][channels].
struct PairPlane {
  PairPlane(std::size_t tiles, std::size_t channels)
      : row(channels + 16), size((tiles + 1) / 2 * row + 16) {}
  std::size_t row, size;
};

template <int size, int border, class Transform>
INLINE void pair_tiles(const Tiles& tiles, const bf16* x, std::size_t first, std::size_t count,
                       const Transform& transform, Pair* to) {
  const PairPlane plane(count, tiles.channels);
  const auto* outside = reinterpret_cast<const bf16*>(zeros);
  for (std::size_t t = 0; t < count; t += 2) {
    const bf16 *even[size * size], *odd[size * size];
    find<size, border>(tiles, x, first + t, even);
    if (t + 1 < count)
      find<size, border>(tiles, x, first + t + 1, odd);
    else
      std::fill_n(odd, size * size, outside);
    for (std::size_t c = 0; c < tiles.channels; c += 16) {
      const Square a = transform(even, c), b = transform(odd, c);
      for (std::size_t p = 0; p < planes; ++p)
        store_pairs(to + p * plane.size + t / 2 * plane.row + c, a.v[p], b.v[p]);
    }
  }
}

/// c [R, 16 V] = the transpose of a [pairs, R], times b [pairs, 16 V].
template <int R, int V>
void gradient_block(const Pair* a, std::size_t a_row, const Pair* b, std::size_t b_row,
                    std::size_t pairs, float* c) {
  v16 sum[R][V] = {};
  for (std::size_t k = 0; k < pairs; ++k, a += a_row, b += b_row) {
    __m512i w[V];
    for (int v = 0; v < V; ++v) w[v] = _mm512_loadu_si512(b + 16 * v);
    for (int r = 0; r < R; ++r)
      for (int v = 0; v < V; ++v) sum[r][v] = dot(sum[r][v], a[r], w[v]);
  }
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < V; ++v) store(c + 16 * (r * V + v), sum[r][v]);
}

/// Turns the products of 16 inputs [planes][block of inputs][width] into gradients of weights.
void finish_gradient(const float* products, std::size_t plane, std::size_t width,
                     const WinogradChannels& channels, std::size_t in, std::size_t out, bool add,
                     float* gradient) {
  const auto half = splat(0.5f);
  for (std::size_t k = 0; k < 16; ++k)
    for (std::size_t n = 0; n < width; n += 16) {
      const float* from = products + k * width + n;
      float* to = gradient + (((out + n) / 16 * (channels.in / 16) + in / 16) * 9 * 16 + k) * 16;
      const auto line = [&](v16 a, v16 b, v16 c, v16 d, v16(&r)[3]) {
        const v16 even = half * (b + c);
        r[0] = a + even;
        r[1] = half * (b - c);
        r[2] = even + d;
      };
      v16 columns[4][3];
      for (std::size_t j = 0; j < 4; ++j) {
        const auto at = [&](std::size_t i) { return load(from + (i * 4 + j) * plane); };
        line(at(0), at(1), at(2), at(3), columns[j]);
      }
      for (int i = 0; i < 3; ++i) {
        v16 r[3];
        line(columns[0][i], columns[1][i], columns[2][i], columns[3][i], r);
        for (int j = 0; j < 3; ++j) {
          float* tap = to + (i * 3 + j) * 256;
          store(tap, add ? load(tap) + r[j] : r[j]);
        }
      }
    }
}

template <int V>
void gradient_panel(const Pair* v, const PairPlane& in, const Pair* d, const PairPlane& out,
                    std::size_t pairs, std::size_t inputs, float* to) {
  for (std::size_t p = 0; p < planes; ++p)
    for (std::size_t k = 0; k < inputs; k += gradient_rows)
      gradient_block<gradient_rows, V>(v + p * in.size + k, in.row, d + p * out.size, out.row,
                                       pairs, to + p * (inputs * 16 * V + 16) + k * 16 * V);
}

void weight_gradient(const WinogradImages& images, const void* x, const void* dy,
                     const WinogradChannels& channels, bool add, float* gradient,
                     const WinogradScratch& scratch) {
  const Tiles in(images, channels.in), out(images, channels.out);
  const std::size_t all = images.rows * in.each, most = scratch.tiles;
  const std::size_t blocks = (all + most - 1) / most;
  for (std::size_t i = 0; i < blocks; ++i, add = true) {
    const std::size_t first = all * i / blocks, count = all * (i + 1) / blocks - first;
    const PairPlane in_plane(count, channels.in), out_plane(count, channels.out);
    auto* v = reinterpret_cast<Pair*>(scratch.values);
    Pair* d = v + planes * in_plane.size;
    pair_tiles<4, 1>(
        in, static_cast<const bf16*>(x), first, count,
        [](const auto& from, std::size_t c) { return input_square(from, c); }, v);
    pair_tiles<2, 0>(
        out, static_cast<const bf16*>(dy), first, count,
        [](const auto& from, std::size_t c) { return output_square(from, c); }, d);
    for (std::size_t n = 0; n < channels.out; n += panel_width) {
      const std::size_t width = std::min<std::size_t>(panel_width, channels.out - n);
      for (std::size_t k = 0; k < channels.in; k += winograd_inputs) {
        const std::size_t inputs = std::min<std::size_t>(winograd_inputs, channels.in - k);
        const std::size_t pairs = (count + 1) / 2;
        if (width == 16)
          gradient_panel<1>(v + k, in_plane, d + n, out_plane, pairs, inputs, scratch.panel);
        else
          gradient_panel<panel_vectors>(v + k, in_plane, d + n, out_plane, pairs, inputs,
                                        scratch.panel);
        for (std::size_t part = 0; part < inputs; part += 16)
          finish_gradient(scratch.panel + part * width, inputs * width + 16, width, channels,
                          k + part, n, add, gradient);
      }
    }
  }
}

}  // namespace

const WinogradKernels winograd_pairs_avx512_bf16 = {
    {2, planes, sizeof(bf16)}, transform_weights, convolve, weight_gradient};

}  // namespace lockstep::cpu
