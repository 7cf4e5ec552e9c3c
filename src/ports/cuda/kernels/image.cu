#include "ports/cuda/kernels/vector.cuh"

namespace lockstep::cuda {

namespace {

__device__ float entered(std::uint8_t pixel, float scale, float shift) {
  return backend::arithmetic::normalised(pixel, {scale, shift});
}
__device__ float entered(float value, float, float) { return value; }

/// One thread writes four channels of one pixel.
template <class In, class T>
__global__ void image_kernel(ImageInput in, T* out) {
  const std::size_t quads = static_cast<std::size_t>(in.padded) / 4;
  const std::size_t i = thread_index();
  if (i >= in.count * quads) return;
  const std::size_t pixel = i / quads;
  const int first = static_cast<int>(i % quads) * 4;
  const In* from = static_cast<const In*>(in.pixels) + pixel * in.channels;
  float values[4] = {};
  for (int k = 0; k < 4; ++k) {
    const int c = first + k;
    if (c < in.channels)
      values[k] = entered(from[c], in.scale ? in.scale[c] : 1.f, in.shift ? in.shift[c] : 0.f);
  }
  store(out + i * 4, values);
}

template <class In>
void enter(const ImageInput& in, Storage storage, void* out, cudaStream_t stream) {
  const unsigned blocks = blocks_for(in.count * static_cast<std::size_t>(in.padded) / 4);
  with_type(storage, [&]<class T>(T) {
    launch("image_kernel", image_kernel<In, T>, blocks, block_threads, stream, in,
           static_cast<T*>(out));
  });
}

}  // namespace

void normalise_bytes(const ImageInput& in, Storage storage, void* out, cudaStream_t stream) {
  enter<std::uint8_t>(in, storage, out, stream);
}

void convert_floats(const ImageInput& in, Storage storage, void* out, cudaStream_t stream) {
  ImageInput plain = in;
  plain.scale = plain.shift = nullptr;
  enter<float>(plain, storage, out, stream);
}

}  // namespace lockstep::cuda
