#pragma once

#include <dnnl.hpp>

// The calls of oneDNN 2 (2.6 and newer) that oneDNN 3 does not have. The other folders here say the
// same names for their versions; the Makefile chooses one of them.
namespace lockstep::cpu::onednn {

/// A primitive of Kind, such as dnnl::convolution_forward: `what` is, in oneDNN's order, all that
/// describes it.
template <class Kind, class... What>
typename Kind::primitive_desc describe(const dnnl::engine& engine,
                                       const dnnl::primitive_attr& attributes,
                                       const What&... what) {
  return {typename Kind::desc(what...), attributes, engine};
}

/// The same of a backward pass; forward describes its forward pass.
template <class Kind, class Forward, class... What>
typename Kind::primitive_desc describe_backward(const dnnl::engine& engine,
                                                const dnnl::primitive_attr& attributes,
                                                const Forward& forward, const What&... what) {
  return {typename Kind::desc(what...), attributes, engine, forward};
}

/// Follows a pooling's kernel where its pixels have gaps between them; here none do.
template <class Describe>
auto with_dense_kernel(const dnnl::memory::dims& kernel, const Describe& describe) {
  return describe(kernel);
}

inline dnnl::memory::dims dims_of(const dnnl::memory::desc& desc) { return desc.dims(); }

/// slope: of what is below zero.
inline void append_relu(dnnl::post_ops& after, float slope) {
  after.append_eltwise(1, dnnl::algorithm::eltwise_relu, slope, 0);
}

/// An instruction set that only some versions know; nullptr: not this version either.
inline const char* newer_instruction_set(dnnl_cpu_isa_t) { return nullptr; }

}  // namespace lockstep::cpu::onednn
