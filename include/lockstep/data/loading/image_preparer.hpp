#pragma once

// From the bytes of an image's file to a row: of a data set, as packing stores it, and of a batch,
// as a validation on that data set would have it.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/data/augment/augment.hpp"
#include "lockstep/data/data_set_info.hpp"
#include "lockstep/data/image/image.hpp"

namespace lockstep::data {

/// How images are stored as rows of a data set: as pixels of one size, or as JPEG files.
struct ImageForm {
  /// Pixels: stretched to this; 0: all have one size already.
  std::size_t height = 0, width = 0;
  bool exif_orientation = false;  ///< turn images as their files' Exif data say
  /// JPEG files: those of the images as they are; other images, and what does not fit the next
  /// line, are encoded.
  bool jpeg = false;
  std::size_t short_side = 0;  ///< with jpeg: larger images are resized to it; 0: as they are
  int quality = 90;            ///< with jpeg: of what is encoded
};

/// An image in its form: its pixels and, with jpeg, its file.
struct FormedImage {
  Image image;
  std::string jpeg;
};

/// decode_image(), turned if the form says so.
Image decode_turned(std::string_view file, const std::string& name, const ImageForm& form,
                    Element element);

/// Whether images that come as files can be rows of this kind: 1 or 3 channels of uint8 or uint16.
bool takes_files(const DataSetInfo& stored);

/// Brings an image into the form, as a row of `stored`, whose channels it gets. `file`: what
/// decode_turned() made it from; empty if there is none. Throws InputError naming `name` when it
/// cannot be encoded.
FormedImage bring_into(const ImageForm& form, const DataSetInfo& stored, Image image,
                       std::string file, const std::string& name);

/// Makes rows of a batch from the bytes of single files, by the code that packs them and the code
/// that loads their rows, so that the bits are the same as those of a validation.
///
/// **Thread safety:** one for each thread; it keeps its buffers between images.
class ImagePreparer {
 public:
  /// `stored`: the data set that would hold the images in this form. REQUIRES: nothing in `spec` is
  /// random (Crop::centre). Throws InputError where delivered() does.
  ImagePreparer(const ImageForm& form, const DataSetInfo& stored, const AugmentSpec& spec);
  ~ImagePreparer();
  ImagePreparer(ImagePreparer&&) noexcept;
  std::size_t row_bytes() const;  ///< of a finished row
  /// `file`: a JPEG, PNG, WebP or BMP. Writes [height, width, channels]. Throws InputError naming
  /// `name` when it is not such an image, is damaged, or does not have the size that all images of
  /// the form have. A JPEG that is stored as it is is only decoded where the row needs it.
  void prepare(std::string_view file, const std::string& name, std::span<std::uint8_t> row);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace lockstep::data
