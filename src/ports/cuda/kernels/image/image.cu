#include <algorithm>
#include <cstdint>

#include "lockstep/base/error.hpp"
#include "ports/cuda/kernels/divider.cuh"
#include "ports/cuda/kernels/image/fold.hpp"
#include "ports/cuda/kernels/vector.cuh"

namespace lockstep::cuda {

/// An element that is not uint8, and so enters by mean and 1 / deviation.
template <class Stored>
struct Numbered {
  Stored stored;
};

/// An element that may stand for no data.
template <class In>
struct Sparse {
  In stored;
};

/// An element whose shape changes, and which may stand for no data.
template <class Stored>
struct Shaped {
  Stored stored;
};

template <class Stored>
Shaped<Stored> shaped_form(Stored) {
  return {};
}
template <class Stored>
Shaped<Stored> shaped_form(Numbered<Stored>) {
  return {};
}

/// Calls `use` with the type of an input's elements.
template <class Use>
void with_element(data::Element element, const ImageInput& in, Use use) {
  const auto choose = [&]<class In>(In one) {
    if (in.low != nullptr) return use(shaped_form(one));
    in.has_no_data ? use(Sparse<In>{}) : use(one);
  };
  switch (element) {
    case data::Element::u8:
      return choose(std::uint8_t{});
    case data::Element::u16:
      return choose(Numbered<std::uint16_t>{});
    case data::Element::i16:
      return choose(Numbered<std::int16_t>{});
    case data::Element::f16:
      return choose(Numbered<__half>{});
    case data::Element::f32:
      return choose(Numbered<float>{});
  }
}

__device__ inline float to_float(std::uint8_t v) { return static_cast<float>(v); }
__device__ inline float to_float(std::uint16_t v) { return static_cast<float>(v); }
__device__ inline float to_float(std::int16_t v) { return static_cast<float>(v); }

template <class Stored>
__device__ inline float to_float(Numbered<Stored> v) {
  return to_float(v.stored);
}

/// What becomes of values before their mean is subtracted.
struct Before {
  bool has_no_data;
  float no_data;
  data::Curve curve;
  const float *low, *high;
};
inline Before before_entry(const ImageInput& in) {
  return {in.has_no_data, in.no_data, in.curve, in.low, in.high};
}

/// One channel of a pixel as the network reads it: elements are normalised, floats already are.
template <class Stored>
__device__ inline float entered(Numbered<Stored> pixel, const float* mean, const float* inverse,
                                int c, const Before&) {
  return backend::arithmetic::entered(to_float(pixel.stored), {mean[c], inverse[c]});
}
__device__ inline float entered(std::uint8_t pixel, const float* scale, const float* shift, int c,
                                const Before&) {
  return backend::arithmetic::normalised(pixel, {scale[c], shift[c]});
}
__device__ inline float entered(float value, const float*, const float*, int, const Before&) {
  return value;
}
template <class In>
__device__ inline float entered(Sparse<In> pixel, const float* a, const float* b, int c,
                                const Before& by) {
  const float v = to_float(pixel.stored);
  return v == by.no_data || v != v ? 0.f : entered(pixel.stored, a, b, c, by);
}
template <class Stored>
__device__ inline float entered(Shaped<Stored> pixel, const float* mean, const float* inverse,
                                int c, const Before& by) {
  const float v = to_float(pixel.stored);
  if (by.has_no_data && (v == by.no_data || v != v)) return 0.f;
  return backend::arithmetic::entered(data::shaped(by.curve, v, by.low[c], by.high[c]),
                                      {mean[c], inverse[c]});
}

namespace {

/// One thread writes four channels of one pixel. REQUIRES: fewer than 2^31 threads.
template <class In, class T>
__global__ void image_kernel(ImageInput in, Before by, Divider quads, T* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= static_cast<unsigned>(in.count) * quads.divisor) return;
  const unsigned pixel = quads.quotient(i);
  const int first = static_cast<int>(i - pixel * quads.divisor) * 4;
  const In* from = static_cast<const In*>(in.pixels) + std::size_t{pixel} * in.channels;
  float values[4] = {};
  for (int k = 0; k < 4; ++k) {
    const int c = first + k;
    if (c < in.channels) values[k] = entered(from[c], in.scale, in.shift, c, by);
  }
  store(out + std::size_t{i} * 4, values);
}

/// More pixels than one launch can count take several.
template <class In>
void enter(const ImageInput& in, Storage storage, void* out, cudaStream_t stream) {
  const Divider quads(in.padded / 4);
  const std::size_t most = (std::size_t{1} << 30) / quads.divisor;
  with_type(storage, [&]<class T>(T) {
    for (std::size_t done = 0; done < in.count; done += most) {
      ImageInput part = in;
      part.pixels =
          static_cast<const In*>(in.pixels) + done * static_cast<std::size_t>(in.channels);
      part.count = std::min(most, in.count - done);
      launch("image_kernel", image_kernel<In, T>, blocks_for(part.count * quads.divisor),
             block_threads, stream, part, before_entry(in), quads,
             static_cast<T*>(out) + done * static_cast<std::size_t>(in.padded));
    }
  });
}

}  // namespace

void normalise_elements(data::Element element, const ImageInput& in, Storage storage, void* out,
                        cudaStream_t stream) {
  with_element(element, in, [&]<class In>(In) { enter<In>(in, storage, out, stream); });
}

void convert_floats(const ImageInput& in, Storage storage, void* out, cudaStream_t stream) {
  enter<float>(in, storage, out, stream);
}

namespace {

/// What remains of n; n becomes the quotient.
__device__ unsigned take(unsigned& n, const Divider& by) {
  const unsigned quotient = by.quotient(n), rest = n - quotient * by.divisor;
  n = quotient;
  return rest;
}

struct FoldedImages {
  Divider rows;              ///< of cells, of an image
  Divider accesses;          ///< of 16 bytes, of a folded pixel
  unsigned cell_accesses;    ///< of a cell
  unsigned cells;            ///< of a folded pixel
  unsigned out_width, part;  ///< folded pixels of a row, and of most thread blocks
  unsigned height, width;    ///< of the image
  int channels, stride, padding;
};

/// A thread block makes each cell of a part of a row once, and then copies it into all folded
/// pixels that hold it: in shared memory the cells of a folded pixel are next to each other. Where
/// channels and stride are known (0: they are not), the loops over a cell unroll.
template <class In, class T, int known_channels, int known_stride>
__global__ void __launch_bounds__(block_threads)
    fold_kernel(const In* __restrict__ pixels, const float* __restrict__ scale,
                const float* __restrict__ shift, Before by, FoldedImages of, T* __restrict__ out) {
  using Access = Pack<T, width<T>>;
  __shared__ Access line[most_folded_channels / width<T>];
  const int channels = known_channels > 0 ? known_channels : of.channels;
  const int stride = known_stride > 0 ? known_stride : of.stride;
  const int accesses = known_stride * known_channels > 0
                           ? cell_channels_of(known_stride, known_channels) / width<T>
                           : static_cast<int>(of.cell_accesses);
  const unsigned row = blockIdx.x, first_x = blockIdx.y * of.part;
  const unsigned count = of.part < of.out_width - first_x ? of.part : of.out_width - first_x;
  unsigned n = row;
  const int top = static_cast<int>(take(n, of.rows)) * stride - of.padding;
  const In* image =
      pixels + std::size_t{n} * of.height * of.width * static_cast<unsigned>(channels);
  for (unsigned cell = threadIdx.x; cell < count + of.cells - 1; cell += blockDim.x) {
    const int left = static_cast<int>(first_x + cell) * stride - of.padding;
    int c = 0, sub_x = 0, sub_y = 0;
#pragma unroll
    for (int i = 0; i < accesses; ++i) {
      float values[width<T>] = {};
#pragma unroll
      for (int k = 0; k < width<T>; ++k) {
        // Unsigned: a position above or left of the image becomes larger than the image.
        const auto y = static_cast<unsigned>(top + sub_y), x = static_cast<unsigned>(left + sub_x);
        const bool inside = sub_y < stride && y < of.height && x < of.width;
        // Outside it reads the first pixel in vain, which takes less than not to read.
        const unsigned pixel = inside ? y * of.width + x : 0;
        const In* from = image + std::size_t{pixel} * static_cast<unsigned>(channels);
        const float value = entered(from[c], scale, shift, c, by);
        values[k] = inside ? value : 0.f;
        if (++c < channels) continue;
        c = 0;
        if (++sub_x < stride) continue;
        sub_x = 0;
        ++sub_y;
      }
      store(line[cell * static_cast<unsigned>(accesses) + static_cast<unsigned>(i)].v, values);
    }
  }
  __syncthreads();
  Access* to = reinterpret_cast<Access*>(out) +
               (std::size_t{row} * of.out_width + first_x) * of.accesses.divisor;
  for (unsigned i = threadIdx.x; i < count * of.accesses.divisor; i += blockDim.x) {
    unsigned x = i;
    const unsigned in_pixel = take(x, of.accesses);
    to[i] = line[x * static_cast<unsigned>(accesses) + in_pixel];
  }
}

template <class In>
void enter_folded(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                  cudaStream_t stream) {
  check(fold.folded_channels() <= most_folded_channels, "a folded pixel has too many channels");
  const auto rows = static_cast<unsigned>(in.count / fold.image_pixels()) *
                    static_cast<unsigned>(fold.folded_height());
  const bool usual = fold.channels == 3 && fold.stride == 2;
  with_type(storage, [&]<class T>(T) {
    const int cell = fold.cell_channels() / width<T>;
    // As few parts as shared memory allows, of about one size.
    const int most = most_folded_channels / width<T> / cell - (fold.cells() - 1);
    const int parts = (fold.out_width + most - 1) / most;
    const auto number = [](int n) { return static_cast<unsigned>(n); };
    const FoldedImages of{.rows = Divider(fold.folded_height()),
                          .accesses = Divider(cell * fold.cells()),
                          .cell_accesses = number(cell),
                          .cells = number(fold.cells()),
                          .out_width = number(fold.out_width),
                          .part = number((fold.out_width + parts - 1) / parts),
                          .height = number(fold.height),
                          .width = number(fold.width),
                          .channels = fold.channels,
                          .stride = fold.stride,
                          .padding = fold.padding};
    const dim3 grid(rows, (of.out_width + of.part - 1) / of.part);
    launch("fold_kernel", usual ? fold_kernel<In, T, 3, 2> : fold_kernel<In, T, 0, 0>, grid,
           block_threads, stream, static_cast<const In*>(in.pixels), in.scale, in.shift,
           before_entry(in), of, static_cast<T*>(out));
  });
}

/// Divides by a fold's numbers.
struct FoldDividers {
  explicit FoldDividers(const Fold& fold)
      : kernel(fold.kernel),
        cells(fold.cells()),
        stride(fold.stride),
        channels(fold.channels),
        quads(fold.padded / 4),
        cell_channels(fold.cell_channels()) {}
  Divider kernel, cells, stride, channels, quads, cell_channels;
};

/// One thread writes one folded weight.
template <class T>
__global__ void fold_weights_kernel(const T* from, FoldDividers by, unsigned count, T* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned output = i;
  unsigned sub_y = take(output, by.cell_channels);
  const unsigned cell_x = take(output, by.cells), cell_y = take(output, by.cells);
  const unsigned c = take(sub_y, by.channels), sub_x = take(sub_y, by.stride);
  const unsigned kernel = by.kernel.divisor, stride = by.stride.divisor;
  const unsigned y = cell_y * stride + sub_y, x = cell_x * stride + sub_x;
  const bool exists = sub_y < stride && y < kernel && x < kernel;
  to[i] = exists ? from[((output * kernel + y) * kernel + x) * by.quads.divisor * 4 + c]
                 : rounded<T>(0.f);
}

/// One thread writes four channels of one weight's gradient.
template <class T>
__global__ void unfold_kernel(const T* from, FoldDividers by, unsigned count, bool accumulate,
                              float* to) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count) return;
  unsigned output = i;
  const unsigned first = take(output, by.quads) * 4;
  unsigned cell_x = take(output, by.kernel), cell_y = take(output, by.kernel);
  const unsigned sub_x = take(cell_x, by.stride), sub_y = take(cell_y, by.stride);
  const unsigned cells = by.cells.divisor, channels = by.channels.divisor;
  from += ((output * cells + cell_y) * cells + cell_x) * by.cell_channels.divisor +
          (sub_y * by.stride.divisor + sub_x) * channels;
  float values[4] = {};
  if (accumulate) load(to + std::size_t{i} * 4, values);
#pragma unroll
  for (unsigned k = 0; k < 4; ++k)
    if (first + k < channels) values[k] += to_float(from[first + k]);
  store(to + std::size_t{i} * 4, values);
}

}  // namespace

void fold_elements(data::Element element, const ImageInput& in, const Fold& fold, Storage storage,
                   void* out, cudaStream_t stream) {
  with_element(element, in,
               [&]<class In>(In) { enter_folded<In>(in, fold, storage, out, stream); });
}

void fold_floats(const ImageInput& in, const Fold& fold, Storage storage, void* out,
                 cudaStream_t stream) {
  enter_folded<float>(in, fold, storage, out, stream);
}

void fold_weights(const void* from, const Fold& fold, Storage storage, void* to,
                  cudaStream_t stream) {
  const auto count = static_cast<unsigned>(fold.outputs * fold.cells() * fold.folded_channels());
  with_type(storage, [&]<class T>(T) {
    launch("fold_weights_kernel", fold_weights_kernel<T>, blocks_for(count), block_threads, stream,
           static_cast<const T*>(from), FoldDividers(fold), count, static_cast<T*>(to));
  });
}

void unfold_gradient(const void* from, const Fold& fold, Storage storage, bool accumulate,
                     float* to, cudaStream_t stream) {
  const auto count =
      static_cast<unsigned>(fold.outputs * fold.kernel * fold.kernel * fold.padded / 4);
  with_type(storage, [&]<class T>(T) {
    launch("unfold_kernel", unfold_kernel<T>, blocks_for(count), block_threads, stream,
           static_cast<const T*>(from), FoldDividers(fold), count, accumulate, to);
  });
}

}  // namespace lockstep::cuda
