#pragma once

#include "lockstep/base/choices.hpp"

namespace lockstep::train {

/// Where the program computes; automatic: on GPUs where every rank has one.
enum class BackendChoice { automatic, cpu, cuda };

/// Where the channels are in other programs' images; automatic: judged by the shape.
enum class ImageLayout { automatic, nhwc, nchw };

/// What floats of other programs' images go from and to; automatic: judged by some rows.
enum class FloatRange { automatic, zero_to_one, zero_to_255, minus_one_to_one };

/// How contiguous rows are read.
enum class ReadBy { pread, mmap };

/// Which part of an image is trained on; automatic: random_resized for JPEGs, else random.
enum class CropChoice { automatic, random, random_resized };

/// What a bad training row does: it ends the run, or another row takes its place.
enum class OnBadRow { error, skip };

}  // namespace lockstep::train

namespace lockstep {

template <>
struct Choices<train::BackendChoice> {
  using enum train::BackendChoice;
  static constexpr Choice<train::BackendChoice> all[] = {
      {automatic, "auto"}, {cpu, "cpu"}, {cuda, "cuda"}};
};

template <>
struct Choices<train::ImageLayout> {
  using enum train::ImageLayout;
  static constexpr Choice<train::ImageLayout> all[] = {
      {automatic, "auto"}, {nhwc, "nhwc"}, {nchw, "nchw"}};
};

template <>
struct Choices<train::FloatRange> {
  using enum train::FloatRange;
  static constexpr Choice<train::FloatRange> all[] = {{automatic, "auto"},
                                                      {zero_to_one, "0-1"},
                                                      {zero_to_255, "0-255"},
                                                      {minus_one_to_one, "-1-1"}};
};

template <>
struct Choices<train::ReadBy> {
  using enum train::ReadBy;
  static constexpr Choice<train::ReadBy> all[] = {{pread, "pread"}, {mmap, "mmap"}};
};

template <>
struct Choices<train::CropChoice> {
  using enum train::CropChoice;
  static constexpr Choice<train::CropChoice> all[] = {
      {automatic, "auto"}, {random, "random"}, {random_resized, "random-resized"}};
};

template <>
struct Choices<train::OnBadRow> {
  using enum train::OnBadRow;
  static constexpr Choice<train::OnBadRow> all[] = {{error, "error"}, {skip, "skip"}};
};

}  // namespace lockstep
