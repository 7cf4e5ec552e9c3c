#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <fmt/core.h>

#include "lockstep/base/text/numbers.hpp"

namespace lockstep::serve {

/// Consecutive rows that one worker predicts at a time.
struct Piece {
  std::size_t number = 0, first = 0, rows = 0;
};

/// The pieces of some rows: they follow from the rows and the batch, never from the workers.
class Pieces {
 public:
  /// `each`: rows of a piece; 0: 4096, or fewer so that there are about 64 pieces. It becomes a
  /// multiple of the batch, so that only the last batch of all is padded.
  Pieces(std::size_t rows, std::size_t batch, std::size_t each) : rows_(rows) {
    const std::size_t usual = std::min<std::size_t>(4096, (rows + 63) / 64);
    each_ = std::max<std::size_t>(1, ((each > 0 ? each : usual) + batch - 1) / batch) * batch;
  }
  std::size_t rows_of_one() const { return each_; }
  std::size_t count() const { return (rows_ + each_ - 1) / each_; }
  Piece piece(std::size_t number) const {
    const std::size_t first = number * each_;
    return {number, first, std::min(each_, rows_ - first)};
  }

 private:
  std::size_t rows_, each_;
};

/// Where a swarm keeps its files.
struct SwarmFolder {
  std::filesystem::path root;
  std::filesystem::path claims() const { return root / "claims"; }
  std::filesystem::path parts() const { return root / "parts"; }
  std::filesystem::path part(std::size_t number) const {
    return parts() / fmt::format("part-{:06}.h5", number);
  }
  /// The piece that a part is of; nothing for another file.
  std::optional<std::size_t> number_of(const std::filesystem::path& file) const {
    const std::string name = file.filename().string();
    if (!name.starts_with("part-") || !name.ends_with(".h5")) return std::nullopt;
    const auto number = whole_number<std::uint64_t>(name.substr(5, name.size() - 8));
    return number && part(*number).filename() == file.filename() ? number : std::nullopt;
  }
  std::filesystem::path note() const { return root / "predict.json"; }
  std::filesystem::path merged() const { return root / "predictions.h5"; }
  std::filesystem::path csv() const { return root / "predictions.csv"; }
};

}  // namespace lockstep::serve
