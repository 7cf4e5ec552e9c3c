#pragma once

#include <dnnl.hpp>

// The calls of oneDNN 3, as the folder of oneDNN 2 has them.
namespace lockstep::cpu::onednn {

template <class Kind, class... What>
typename Kind::primitive_desc describe(const dnnl::engine& engine,
                                       const dnnl::primitive_attr& attributes,
                                       const What&... what) {
  return {engine, what..., attributes};
}

template <class Kind, class Forward, class... What>
typename Kind::primitive_desc describe_backward(const dnnl::engine& engine,
                                                const dnnl::primitive_attr& attributes,
                                                const Forward& forward, const What&... what) {
  return {engine, what..., forward, attributes};
}

template <class Describe>
auto with_dense_kernel(const dnnl::memory::dims& kernel, const Describe& describe) {
  return describe(kernel, dnnl::memory::dims(kernel.size(), 0));
}

inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) { return desc.get_dims(); }

inline void append_relu(dnnl::post_ops& after, float slope) {
  after.append_eltwise(dnnl::algorithm::eltwise_relu, slope, 0);
}

inline const char* newer_instruction_set(dnnl_cpu_isa_t set) {
  switch (set) {
    case dnnl_cpu_isa_avx512_core_amx_fp16:
      return "amx-fp16";
    case dnnl_cpu_isa_avx512_core_fp16:
      return "avx512-fp16";
    case dnnl_cpu_isa_avx2_vnni_2:
      return "avx2-vnni-2";
    default:
      return nullptr;
  }
}

}  // namespace lockstep::cpu::onednn
