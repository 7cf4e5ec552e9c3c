#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>
// jpeglib.h needs size_t and FILE before it.
#include <jpeglib.h>

#include "data/image/jpeg/huffman_tables.hpp"

namespace lockstep::data::jpeg {

/// Huffman decoding of baseline JPEGs in place of libjpeg, which spends most of its time there. It
/// first removes the stuffing from the scan's bytes. A table entry holds up to two whole
/// coefficients, and unwanted columns are skipped several coefficients at a time. The coefficients
/// are the same as libjpeg's; broken data ends with libjpeg's error.
///
/// **Thread safety:** one decoder for each thread. It keeps its memory, and its tables as long as
/// images bring the same ones.
class EntropyDecoder {
 public:
  /// Call it between jpeg_start_decompress (and jpeg_crop_scanline, which gave `left` and
  /// `columns`) and the first line. It replaces `codec`'s decoder, unless the image is of another
  /// kind (progressive, arithmetic, several scans). Abort `codec` before destroying this. All of
  /// the scan must be in memory.
  void take_over(jpeg_decompress_struct& codec, std::size_t left, std::size_t columns);

 private:
  static constexpr std::size_t most_blocks = 10;  // of an MCU: D_MAX_BLOCKS_IN_MCU

  struct Block {
    const HuffmanTable *dc, *ac;
    std::size_t component;
  };
  /// The top `held` bits of `word` are the next ones; below them are bits of what follows, or
  /// zeros.
  struct Bits {
    const std::uint8_t* at;
    std::uint64_t word;
    unsigned held;
    void fill();
    void drop(unsigned count);
    std::uint32_t take(unsigned count);
  };
  enum class Single { coefficient, end, bad };

  static boolean decode_mcu(j_decompress_ptr codec, JBLOCKROW* blocks);
  bool next_segment();
  bool decode(JBLOCKROW* blocks);
  static bool coefficients(Bits& bits, const HuffmanTable& ac, JCOEF* block);
  static bool pass_over(Bits& bits, const HuffmanTable& ac);
  static int long_symbol(const Bits& bits, const HuffmanTable& table, unsigned& length);
  static Single single(Bits& bits, const HuffmanTable& ac, unsigned& last, std::int32_t& value);
  static bool difference(Bits& bits, const HuffmanTable& dc, std::int32_t& value);

  void free_of_stuffing(const std::uint8_t* from, std::size_t bytes, bool restarts);

  std::array<HuffmanTable, 4> dc_, ac_;
  std::vector<std::uint8_t> bytes_;  ///< the scan without stuffing and markers, and room after it
  struct Segment {
    std::size_t end;       ///< in bytes_
    std::uint8_t restart;  ///< number of the marker after it; 255: another or none
  };
  std::vector<Segment> segments_;

  std::array<Block, most_blocks> blocks_{};
  std::size_t blocks_in_mcu_ = 0, mcus_in_line_ = 0, first_wanted_ = 0, end_wanted_ = 0;
  std::size_t column_ = 0, restart_interval_ = 0, until_restart_ = 0, segment_ = 0;
  std::array<std::uint32_t, MAX_COMPS_IN_SCAN> last_dc_{};
  // The reading position: `held_` bits of `word_` are there, from its top.
  const std::uint8_t* at_ = nullptr;
  std::uint64_t word_ = 0;
  unsigned held_ = 0;
};

}  // namespace lockstep::data::jpeg
