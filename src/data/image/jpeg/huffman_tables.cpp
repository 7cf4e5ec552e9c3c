#include "data/image/jpeg/huffman_tables.hpp"

#include <algorithm>

#include "lockstep/base/error.hpp"

namespace lockstep::data::jpeg {

void HuffmanTable::build(const JHUFF_TBL& from, bool ac) {
  // Counts of zeros are also those of a table that was never built.
  require(std::any_of(from.bits + 1, from.bits + 17, [](unsigned count) { return count > 0; }),
          "broken JPEG: a Huffman table without codes");
  if (std::equal(counts.begin() + 1, counts.end(), from.bits + 1) &&
      std::equal(symbols.begin(), symbols.end(), from.huffval))
    return;  // same as the last image's
  std::copy_n(from.bits, 17, counts.begin());
  counts[0] = 0;
  std::copy_n(from.huffval, 256, symbols.begin());
  entries.fill(0);
  std::uint32_t code = 0;
  std::size_t symbol = 0;
  for (unsigned length = 1; length <= 16; ++length, code <<= 1) {
    offsets[length] = static_cast<std::int32_t>(symbol) - static_cast<std::int32_t>(code);
    for (unsigned i = 0; i < counts[length]; ++i, ++code, ++symbol) {
      if (length > lookup_bits) continue;
      const unsigned run = symbols[symbol] >> 4, size = symbols[symbol] & 15,
                     left = lookup_bits - length;
      std::uint32_t* const first = &entries[std::size_t{code} << left];
      for (std::uint32_t behind = 0; behind < 1u << left; ++behind) {
        const bool whole = size > 0 && size <= left;
        first[behind] =
            whole ? entry(length + size, run, size, extended(behind >> (left - size), size))
                  : entry(length, run, size, 0);
      }
    }
    ends[length] = code << (16 - length);
  }
  ends[17] = ~0u;
  if (!ac) return;
  build_pairs();
  build_passes();
}

void HuffmanTable::build_pairs() {
  constexpr std::uint32_t all = (1u << lookup_bits) - 1;
  const auto inside = [](std::uint32_t e, unsigned used, unsigned value_bits) {
    return is_whole(e) && used + length_of(e) <= lookup_bits && fits(value_of(e), value_bits);
  };
  for (std::uint32_t bits = 0; bits <= all; ++bits) {
    const std::uint32_t a = entries[bits];
    pairs[bits] = no_pair;
    if (length_of(a) > 0 && ends_block(a)) pairs[bits] = pair(length_of(a), true, {}, {});
    if (!inside(a, 0, pair_first_bits)) continue;
    const Coefficient first{run_of(a) + 1, value_of(a)};
    const unsigned used = length_of(a);
    // Some of its bits may lie beyond the lookup: then it is too long to be looked up.
    const std::uint32_t b = entries[bits << used & all];
    if (length_of(b) > 0 && ends_block(b) && used + length_of(b) <= lookup_bits)
      pairs[bits] = pair(used + length_of(b), true, first, {});
    else if (inside(b, used, pair_second_bits) && first.step + run_of(b) + 1 < 1u << pair_step_bits)
      pairs[bits] =
          pair(used + length_of(b), false, first, {first.step + run_of(b) + 1, value_of(b)});
    else if (fits(first.value, pair_second_bits))
      pairs[bits] = pair(used, false, first, first);
  }
}

void HuffmanTable::build_passes() {
  for (std::uint32_t bits = 0; bits < passes.size(); ++bits) {
    unsigned used = 0, coefficients = 0;
    bool ended = false;
    while (!ended && used < pass_bits) {
      const std::uint32_t rest = bits << used & (passes.size() - 1);
      const std::uint32_t e = entries[rest >> (pass_bits - lookup_bits)];
      // The bits after a code may lie beyond the lookup: nothing uses them.
      if (length_of(e) == 0 || used + code_length(e) > pass_bits ||
          used + full_length(e) > most_passed)
        break;
      used += full_length(e);
      ended = ends_block(e);
      coefficients += ended ? 0 : run_of(e) + 1;
    }
    passes[bits] = used > 0 ? pass(used, ended, coefficients) : no_pass;
  }
}

}  // namespace lockstep::data::jpeg
