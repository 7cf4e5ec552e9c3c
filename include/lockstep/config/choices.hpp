#pragma once

#include "lockstep/base/text/choices.hpp"

namespace lockstep::config {

/// A key that is true, false, or decided by a start: automatic.
enum class Switch { automatic, on, off };

/// Where the program computes; automatic: on GPUs if every rank has one; clock: nowhere, it waits.
enum class BackendChoice { automatic, cpu, cuda, clock };

/// Where the channels are in images of other programs; automatic: inferred from the shape.
enum class ImageLayout { automatic, nhwc, nchw };

/// What the numbers in images of other programs become; automatic: inferred from their kind and
/// from some rows.
enum class ElementChoice { automatic, u8, u16, i16, f16, f32 };

/// What a network says of an image; automatic: inferred from the labels' form.
enum class TaskChoice { automatic, classes, labels, values };

/// The range of floats that become uint8; automatic: inferred from some rows.
enum class FloatRange { automatic, zero_to_one, zero_to_255, minus_one_to_one };

/// How contiguous rows are read.
enum class ReadBy { pread, mmap };

/// The part of an image to train on; automatic: random_resized for JPEGs, else random.
enum class CropChoice { automatic, random, random_resized };

/// What happens at a bad training row: the run ends, or another row takes its place.
enum class OnBadRow { error, skip };

/// How ranks on the host sum their gradients; automatic: over two levels where nodes have them.
enum class AllReduceChoice { automatic, flat, two_level };

/// The format in which ranks send gradients to each other.
enum class Wire { fp32, bf16, fp16, int8 };

/// Who trains together between two agreements on the weights.
enum class SyncGroup { node, rank };

/// In which order the stages of a network run the micro-batches of a step: all forwards, then all
/// backwards; or a backward as soon as there is one, so that fewer are in memory at once; or so
/// with weight gradients apart, which a stage makes where it would wait (ZB-H1 of Qi et al. 2024).
enum class PipelineOrder { gpipe, one_f_one_b, zb_h1 };

/// The last layer of a run that begins with a file's weights: the file's, or a new one; automatic:
/// the file's where it tells the data set's classes apart.
enum class HeadChoice { automatic, keep, fresh };

}  // namespace lockstep::config

namespace lockstep {

template <>
struct Choices<config::Switch> {
  using enum config::Switch;
  static constexpr Choice<config::Switch> all[] = {
      {automatic, "auto"}, {on, "true"}, {off, "false"}};
};

template <>
struct Choices<config::HeadChoice> {
  using enum config::HeadChoice;
  static constexpr Choice<config::HeadChoice> all[] = {
      {automatic, "auto"}, {keep, "keep"}, {fresh, "new"}};
};

template <>
struct Choices<config::SyncGroup> {
  using enum config::SyncGroup;
  static constexpr Choice<config::SyncGroup> all[] = {{node, "node"}, {rank, "rank"}};
};

template <>
struct Choices<config::PipelineOrder> {
  using enum config::PipelineOrder;
  static constexpr Choice<config::PipelineOrder> all[] = {
      {gpipe, "gpipe"}, {one_f_one_b, "1f1b"}, {zb_h1, "zb-h1"}};
};

template <>
struct Choices<config::Wire> {
  using enum config::Wire;
  static constexpr Choice<config::Wire> all[] = {
      {fp32, "fp32"}, {bf16, "bf16"}, {fp16, "fp16"}, {int8, "int8"}};
};

template <>
struct Choices<config::AllReduceChoice> {
  using enum config::AllReduceChoice;
  static constexpr Choice<config::AllReduceChoice> all[] = {
      {automatic, "auto"}, {flat, "flat"}, {two_level, "two-level"}};
};

template <>
struct Choices<config::BackendChoice> {
  using enum config::BackendChoice;
  static constexpr Choice<config::BackendChoice> all[] = {
      {automatic, "auto"}, {cpu, "cpu"}, {cuda, "cuda"}, {clock, "clock"}};
};

template <>
struct Choices<config::ImageLayout> {
  using enum config::ImageLayout;
  static constexpr Choice<config::ImageLayout> all[] = {
      {automatic, "auto"}, {nhwc, "nhwc"}, {nchw, "nchw"}};
};

template <>
struct Choices<config::ElementChoice> {
  using enum config::ElementChoice;
  static constexpr Choice<config::ElementChoice> all[] = {{automatic, "auto"}, {u8, "uint8"},
                                                          {u16, "uint16"},     {i16, "int16"},
                                                          {f16, "float16"},    {f32, "float32"}};
};

template <>
struct Choices<config::TaskChoice> {
  using enum config::TaskChoice;
  static constexpr Choice<config::TaskChoice> all[] = {
      {automatic, "auto"}, {classes, "classes"}, {labels, "labels"}, {values, "values"}};
};

template <>
struct Choices<config::FloatRange> {
  using enum config::FloatRange;
  static constexpr Choice<config::FloatRange> all[] = {{automatic, "auto"},
                                                       {zero_to_one, "0-1"},
                                                       {zero_to_255, "0-255"},
                                                       {minus_one_to_one, "-1-1"}};
};

template <>
struct Choices<config::ReadBy> {
  using enum config::ReadBy;
  static constexpr Choice<config::ReadBy> all[] = {{pread, "pread"}, {mmap, "mmap"}};
};

template <>
struct Choices<config::CropChoice> {
  using enum config::CropChoice;
  static constexpr Choice<config::CropChoice> all[] = {
      {automatic, "auto"}, {random, "random"}, {random_resized, "random-resized"}};
};

template <>
struct Choices<config::OnBadRow> {
  using enum config::OnBadRow;
  static constexpr Choice<config::OnBadRow> all[] = {{error, "error"}, {skip, "skip"}};
};

}  // namespace lockstep
