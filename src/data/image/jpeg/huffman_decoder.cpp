#include "data/image/jpeg/huffman_decoder.hpp"

#include <cstring>

#include <jerror.h>

// libjpeg's interface between its parts. jpeglib.h only declares it. Its first two members have
// been these since version 6.
struct jpeg_entropy_decoder {
  void (*start_pass)(j_decompress_ptr codec);
  boolean (*decode_mcu)(j_decompress_ptr codec, JBLOCKROW* blocks);
};

namespace lockstep::data::jpeg {
namespace {

// A block has at most 64 symbols of at most 31 bits. Beyond the end, zeros are read.
constexpr std::size_t input_room = 512;
constexpr std::uint8_t no_restart = 255;

// From zigzag order; a run that leads beyond the last coefficient (broken data) stops there. The
// longest step is one of pair_step_bits.
constexpr std::size_t reachable = 64 + (std::size_t{1} << pair_step_bits);
constexpr std::array<std::uint8_t, reachable> natural_order = [] {
  std::array<std::uint8_t, reachable> order{};
  int x = 0, y = 0;
  for (std::size_t k = 0; k < 64; ++k) {
    order[k] = static_cast<std::uint8_t>(8 * y + x);
    const bool up = (x + y) % 2 == 0;
    if (up ? x == 7 : x == 0 && y != 7)
      ++y;
    else if (y == (up ? 0 : 7))
      ++x;
    else if (up)
      ++x, --y;
    else
      --x, ++y;
  }
  for (std::size_t k = 64; k < reachable; ++k) order[k] = 63;
  return order;
}();

}  // namespace

/// At least 56 bits.
inline void EntropyDecoder::Bits::fill() {
  std::uint64_t more;
  std::memcpy(&more, at, sizeof more);
  word |= __builtin_bswap64(more) >> held;
  at += (63 - held) >> 3;
  held |= 56;
}
inline void EntropyDecoder::Bits::drop(unsigned count) {
  word <<= count;
  held -= count;
}
inline std::uint32_t EntropyDecoder::Bits::take(unsigned count) {  // 1 to 16
  const auto taken = static_cast<std::uint32_t>(word >> (64 - count));
  drop(count);
  return taken;
}

void EntropyDecoder::free_of_stuffing(const std::uint8_t* from, std::size_t bytes, bool restarts) {
  if (bytes_.size() < bytes + input_room) bytes_.resize(bytes + input_room);
  segments_.clear();
  std::uint8_t* to = bytes_.data();
  const std::uint8_t* const end = from + bytes;
  const auto written = [&] { return static_cast<std::size_t>(to - bytes_.data()); };
  while (from < end) {
    const auto* mark = static_cast<const std::uint8_t*>(
        std::memchr(from, 0xFF, static_cast<std::size_t>(end - from)));
    const std::size_t plain = static_cast<std::size_t>((mark != nullptr ? mark : end) - from);
    std::memcpy(to, from, plain);
    to += plain;
    if (mark == nullptr) break;
    while (mark < end && *mark == 0xFF) ++mark;  // any number of them may precede a marker
    if (mark == end) break;
    from = mark + 1;
    if (*mark == 0) {
      *to++ = 0xFF;
    } else if (restarts && *mark >= 0xD0 && *mark <= 0xD7) {
      segments_.push_back({written(), static_cast<std::uint8_t>(*mark - 0xD0)});
    } else {
      break;
    }
  }
  segments_.push_back({written(), no_restart});
  std::memset(to, 0, input_room);
}

void EntropyDecoder::take_over(jpeg_decompress_struct& codec, std::size_t left,
                               std::size_t columns) {
  const auto components = static_cast<std::size_t>(codec.comps_in_scan);
  if (codec.progressive_mode || codec.arith_code || codec.comps_in_scan != codec.num_components ||
      codec.blocks_in_MCU > static_cast<int>(most_blocks))
    return;
  for (std::size_t i = 0; i < components; ++i) {
    const jpeg_component_info& component = *codec.cur_comp_info[i];
    const auto dc = static_cast<std::size_t>(component.dc_tbl_no);
    const auto ac = static_cast<std::size_t>(component.ac_tbl_no);
    dc_[dc].build(*codec.dc_huff_tbl_ptrs[dc], false);
    ac_[ac].build(*codec.ac_huff_tbl_ptrs[ac], true);
  }
  blocks_in_mcu_ = static_cast<std::size_t>(codec.blocks_in_MCU);
  for (std::size_t b = 0; b < blocks_in_mcu_; ++b) {
    const auto index = static_cast<std::size_t>(codec.MCU_membership[b]);
    const jpeg_component_info& component = *codec.cur_comp_info[index];
    blocks_[b] = {&dc_[static_cast<std::size_t>(component.dc_tbl_no)],
                  &ac_[static_cast<std::size_t>(component.ac_tbl_no)], index};
  }
  free_of_stuffing(codec.src->next_input_byte, codec.src->bytes_in_buffer,
                   codec.restart_interval > 0);
  // The columns that libjpeg transforms: those of jpeg_crop_scanline.
  const std::size_t block = DCTSIZE / codec.scale_denom;
  const std::size_t across =
      block * (components == 1 ? 1 : static_cast<std::size_t>(codec.max_h_samp_factor));
  mcus_in_line_ = codec.MCUs_per_row;
  first_wanted_ = left / across;
  end_wanted_ = (left + columns + across - 1) / across;
  column_ = 0;
  restart_interval_ = until_restart_ = codec.restart_interval;
  segment_ = 0;
  last_dc_ = {};
  at_ = bytes_.data();
  word_ = 0;
  held_ = 0;
  codec.client_data = this;
  codec.entropy->decode_mcu = decode_mcu;
}

// Plain data only: libjpeg's errors leave by longjmp.
boolean EntropyDecoder::decode_mcu(j_decompress_ptr codec, JBLOCKROW* blocks) {
  auto& self = *static_cast<EntropyDecoder*>(codec->client_data);
  if (!self.decode(blocks)) WARNMS(codec, JWRN_HIT_MARKER);  // does not return
  return TRUE;
}

/// Continues after a restart marker, which must have the next number.
bool EntropyDecoder::next_segment() {
  if (segments_[segment_].restart != segment_ % 8) return false;
  at_ = bytes_.data() + segments_[segment_].end;
  ++segment_;
  word_ = 0;
  held_ = 0;
  last_dc_ = {};
  until_restart_ = restart_interval_;
  return true;
}

bool EntropyDecoder::decode(JBLOCKROW* blocks) {
  if (restart_interval_ > 0 && until_restart_-- == 0) {
    if (!next_segment()) return false;
    --until_restart_;
  }
  const bool wanted = blocks != nullptr && column_ >= first_wanted_ && column_ < end_wanted_;
  if (++column_ == mcus_in_line_) column_ = 0;
  const std::uint8_t* const end = bytes_.data() + segments_[segment_].end;
  Bits bits{at_, word_, held_};
  for (std::size_t b = 0; b < blocks_in_mcu_; ++b) {
    const Block& block = blocks_[b];
    std::int32_t step = 0;
    // Rarely, in broken data: a block never reads beyond the room after the scan.
    if (bits.at > end + sizeof bits.word || !difference(bits, *block.dc, step)) return false;
    std::uint32_t& dc = last_dc_[block.component];
    dc += static_cast<std::uint32_t>(step);
    if (wanted) blocks[b][0][0] = static_cast<JCOEF>(dc);
    if (!(wanted ? coefficients(bits, *block.ac, blocks[b][0]) : pass_over(bits, *block.ac)))
      return false;
  }
  at_ = bits.at;
  word_ = bits.word;
  held_ = bits.held;
  // Bits beyond the end were used.
  return 8 * (end - bits.at) + static_cast<std::ptrdiff_t>(bits.held) >= 0;
}

/// The symbol of a code longer than HuffmanTable::lookup_bits; negative: no such code.
inline int EntropyDecoder::long_symbol(const Bits& bits, const HuffmanTable& table,
                                       unsigned& length) {
  const auto next = static_cast<std::uint32_t>(bits.word >> 48);
  length = HuffmanTable::lookup_bits + 1;
  for (unsigned longer = HuffmanTable::lookup_bits + 1; longer <= 16; ++longer)
    length += next >= table.ends[longer];
  if (length > 16) return -1;
  const auto code = static_cast<std::int32_t>(next >> (16 - length));
  const std::int32_t index = code + table.offsets[length];
  return table.symbols[static_cast<std::size_t>(index)];
}

inline bool EntropyDecoder::difference(Bits& bits, const HuffmanTable& dc, std::int32_t& value) {
  bits.fill();
  const std::uint32_t e = dc.entries[bits.word >> (64 - HuffmanTable::lookup_bits)];
  value = value_of(e);
  if (length_of(e) > 0) [[likely]] {
    bits.drop(length_of(e));
    if (!is_whole(e) && size_of(e) > 0) value = extended(bits.take(size_of(e)), size_of(e));
    return true;
  }
  unsigned length = 0;
  const int size = long_symbol(bits, dc, length);
  if (size < 0 || size > 15) return false;
  bits.drop(length);
  const auto count = static_cast<unsigned>(size);
  if (count > 0) value = extended(bits.take(count), count);
  return true;
}

/// The next coefficient after `last` (0: 16 coefficients that are 0), or the end.
inline EntropyDecoder::Single EntropyDecoder::single(Bits& bits, const HuffmanTable& ac,
                                                     unsigned& last, std::int32_t& value) {
  bits.fill();
  const std::uint32_t e = ac.entries[bits.word >> (64 - HuffmanTable::lookup_bits)];
  unsigned run = run_of(e), size = size_of(e), length = length_of(e);
  if (length == 0) {
    const int symbol = long_symbol(bits, ac, length);
    if (symbol < 0) return Single::bad;
    run = static_cast<unsigned>(symbol) >> 4;
    size = static_cast<unsigned>(symbol) & 15;
  }
  bits.drop(length);
  if (size == 0 && run != 15) return Single::end;
  last += run + 1;
  value = value_of(e);
  if (value == 0 && size > 0) value = extended(bits.take(size), size);
  return Single::coefficient;
}

inline bool EntropyDecoder::coefficients(Bits& bits, const HuffmanTable& ac, JCOEF* block) {
  constexpr unsigned together =
      56 / HuffmanTable::lookup_bits;  // bits for that many are there at once
  for (unsigned last = 0;;) {
    bits.fill();
    for (unsigned i = 0; i < together; ++i) {
      const std::uint32_t e = ac.pairs[bits.word >> (64 - HuffmanTable::lookup_bits)];
      const unsigned first = last + first_step(e), second = last + second_step(e);
      if (!is_plain(e) || second > 63) [[unlikely]] {
        if (last == 63) return true;
        if (ends_behind(e) && first < 63) {
          bits.drop(pair_length(e));
          if (first > last) block[natural_order[first]] = static_cast<JCOEF>(first_value(e));
          return true;
        }
        std::int32_t value = 0;
        const Single one = single(bits, ac, last, value);
        if (one != Single::coefficient) return one == Single::end;
        if (value != 0) block[natural_order[last]] = static_cast<JCOEF>(value);
        if (last >= 63) return true;
        break;  // to fill the bits again
      }
      bits.drop(pair_length(e));
      block[natural_order[first]] = static_cast<JCOEF>(first_value(e));
      block[natural_order[second]] = static_cast<JCOEF>(second_value(e));
      last = second;
    }
  }
}

inline bool EntropyDecoder::pass_over(Bits& bits, const HuffmanTable& ac) {
  constexpr unsigned together = 56 / most_passed;
  for (unsigned last = 0;;) {
    bits.fill();
    for (unsigned i = 0; i < together; ++i) {
      const std::uint16_t pass = ac.passes[bits.word >> (64 - HuffmanTable::pass_bits)];
      const unsigned next = last + pass_coefficients(pass);
      // The next block may begin among the coefficients of an entry.
      if (!is_plain(pass) || next > 63) [[unlikely]] {
        if (last == 63) return true;
        if (pass_length(pass) > 0 && !is_plain(pass) && next < 63) {
          bits.drop(pass_length(pass));
          return true;
        }
        std::int32_t value = 0;
        const Single one = single(bits, ac, last, value);
        if (one != Single::coefficient) return one == Single::end;
        if (last >= 63) return true;
        break;
      }
      bits.drop(pass_length(pass));
      last = next;
    }
  }
}

}  // namespace lockstep::data::jpeg
