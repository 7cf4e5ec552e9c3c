#include "app/info/info_text.hpp"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "lockstep/base/clock.hpp"
#include "lockstep/base/error.hpp"

namespace lockstep::app {
namespace {

using Json = nlohmann::ordered_json;

constexpr double trial_seconds = 0.3;

/// Seconds per row when a thread reads rows in order, over whole blocks.
double in_order_s(const data::DataSet& rows) {
  const std::size_t count = rows.info().rows, block = rows.storage().block_rows;
  const bool jpeg = rows.info().encoding == data::Encoding::jpeg;
  std::vector<std::uint8_t> image(rows.info().row_bytes()), file;
  const double start = now_s();
  std::size_t done = 0;
  for (std::size_t row = 0; row < count && now_s() - start < trial_seconds; done = row)
    for (const std::size_t end = std::min(count, row + block); row < end; ++row)
      jpeg ? void(rows.read_jpeg(row, file)) : rows.read(row, image);
  return (now_s() - start) / static_cast<double>(std::max<std::size_t>(1, done));
}

/// The same in random order: each row needs its block decoded, unless the block is still cached.
double random_s(const data::DataSet& rows, double in_order) {
  const data::Storage storage = rows.storage();
  const double all =
      static_cast<double>(rows.info().rows) * static_cast<double>(rows.info().row_bytes());
  const double kept = std::min(1.0, static_cast<double>(storage.cache_bytes) / all);
  const double blocks = static_cast<double>(storage.block_rows) * (1 - kept);
  return storage.contiguous ? in_order : in_order * std::max(1.0, blocks);
}

Json advice(const data::DataSet& rows, double in_order, double random) {
  const data::Storage storage = rows.storage();
  Json texts = Json::array();
  if (storage.through_hdf5)
    texts.push_back(
        "HDF5 itself decodes these files, one thread at a time: rewrite them with a filter that "
        "lockstep knows (gzip, LZF, Zstandard, Blosc), or as shards ('lockstep pack --repack')");
  if (random > 1.5 * in_order)
    texts.push_back(fmt::format(
        "each row in random order costs a block of {} rows: rewrite the data as shards ('lockstep "
        "pack --repack') or with chunks of one row, or set data.cache-mb to {:.0f}, which holds "
        "all",
        storage.block_rows,
        static_cast<double>(rows.info().rows) * static_cast<double>(rows.info().row_bytes()) / 1e6 +
            1));
  if (storage.layout.find("cut into") != std::string::npos)
    texts.push_back("each row is spread over many chunks: chunks of whole rows are faster");
  if (storage.converted)
    texts.push_back(
        "numbers are converted as they are read: uint8 with the channels last is "
        "faster and smaller");
  return texts;
}

}  // namespace

Json reading_as_json(const data::DataSet& rows, const data::DataSet& uncached) {
  const data::Storage storage = rows.storage();
  double in_order = 0;
  try {
    in_order = in_order_s(uncached);
  } catch (const InputError& error) {  // the layout can be reported anyway
    return {{"layout", storage.layout}, {"problem", error.what()}};
  }
  const double random = random_s(rows, in_order);
  return {{"layout", storage.layout},
          {"contiguous", storage.contiguous},
          {"through_hdf5", storage.through_hdf5},
          {"block_rows", storage.block_rows},
          {"checksums", storage.checksums},
          {"rows_per_s_in_order", 1 / in_order},
          {"rows_per_s_random", 1 / random},
          {"advice", advice(rows, in_order, random)}};
}

std::string reading_as_text(const Json& reading) {
  if (reading.contains("problem"))
    return fmt::format("stored {}; {}\n", reading["layout"].get<std::string>(),
                       reading["problem"].get<std::string>());
  std::string text = fmt::format(
      "stored {}{}; a thread reads about {:.0f} rows/s in order, {:.0f} in random order\n",
      reading["layout"].get<std::string>(), reading["checksums"] ? "" : ", without checksums",
      reading["rows_per_s_in_order"].get<double>(), reading["rows_per_s_random"].get<double>());
  for (const Json& line : reading["advice"])
    text += fmt::format("  faster: {}\n", line.get<std::string>());
  return text;
}

}  // namespace lockstep::app
