#include <algorithm>

#include "ports/cuda/kernels/divider.cuh"
#include "ports/cuda/kernels/image/pixel.cuh"

namespace lockstep::cuda {

namespace {

/// One thread writes four channels of one pixel. REQUIRES: fewer than 2^31 threads.
template <class In, class T>
__global__ void image_kernel(ImageInput in, Divider quads, T* out) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= static_cast<unsigned>(in.count) * quads.divisor) return;
  const unsigned pixel = quads.quotient(i);
  const int first = static_cast<int>(i - pixel * quads.divisor) * 4;
  const In* from = static_cast<const In*>(in.pixels) + std::size_t{pixel} * in.channels;
  float values[4] = {};
  for (int k = 0; k < 4; ++k) {
    const int c = first + k;
    if (c < in.channels) values[k] = entered(from[c], in.scale, in.shift, c);
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
             block_threads, stream, part, quads,
             static_cast<T*>(out) + done * static_cast<std::size_t>(in.padded));
    }
  });
}

}  // namespace

void normalise_bytes(const ImageInput& in, Storage storage, void* out, cudaStream_t stream) {
  enter<std::uint8_t>(in, storage, out, stream);
}

void convert_floats(const ImageInput& in, Storage storage, void* out, cudaStream_t stream) {
  enter<float>(in, storage, out, stream);
}

}  // namespace lockstep::cuda
