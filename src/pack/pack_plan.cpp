#include "lockstep/pack/pack_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "lockstep/base/error.hpp"
#include "lockstep/base/rng.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/data/shard/held_out.hpp"
#include "pack/packer.hpp"

namespace lockstep::pack {
namespace {

using Rows = std::vector<std::size_t>;

void shuffle(Rows& rows, std::uint64_t seed, Draw purpose) {
  std::vector<std::pair<std::uint64_t, std::size_t>> keyed;
  keyed.reserve(rows.size());
  for (const std::size_t row : rows) keyed.emplace_back(draw(seed, 0, row, purpose), row);
  std::sort(keyed.begin(), keyed.end());
  std::transform(keyed.begin(), keyed.end(), rows.begin(), [](const auto& k) { return k.second; });
}

/// Moves a share of each class from `training`, the first rows, to the result.
Rows hold_out(const Source& source, const PackSpec& spec, Rows& training) {
  std::vector<std::int32_t> labels;
  for (const std::size_t row : training) labels.push_back(source.label(row));
  const std::vector<bool> is_held = data::held_out_rows(labels, spec.held_out, spec.seed);
  Rows kept, held;
  for (const std::size_t row : training) (is_held[row] ? held : kept).push_back(row);
  training = std::move(kept);
  return held;
}

std::size_t shard_count(std::size_t rows, std::size_t row_bytes, std::size_t rows_per_shard) {
  const auto pieces = [](std::size_t all, std::size_t of) { return (all + of - 1) / of; };
  if (rows_per_shard > 0) return pieces(rows, rows_per_shard);
  constexpr std::size_t few = 8, worthwhile = 1000, largest = 256'000'000;
  return std::max(std::min(few, pieces(rows, worthwhile)), pieces(rows * row_bytes, largest));
}

void add_split(std::vector<ShardPlan>& plan, Rows rows, bool training, const PackSpec& spec,
               std::size_t row_bytes) {
  if (spec.keep_order)
    std::sort(rows.begin(), rows.end());
  else
    shuffle(rows, spec.seed, Draw::shuffle);
  const std::size_t shards = shard_count(rows.size(), row_bytes, spec.rows_per_shard);
  const char* split = training ? "train" : "val";
  const auto at = [&](std::size_t shard) {
    return rows.begin() + static_cast<std::ptrdiff_t>(rows.size() * shard / shards);
  };
  for (std::size_t s = 0; s < shards; ++s)
    plan.push_back({fmt::format("{}/{}-{:05}-of-{:05}.h5", split, split, s, shards), training,
                    Rows(at(s), at(s + 1))});
}

}  // namespace

std::vector<ShardPlan> plan_shards(const Source& source, const PackSpec& spec,
                                   std::size_t row_bytes) {
  const std::size_t training_rows = source.training_rows();
  Rows training(training_rows), validation(source.rows() - training_rows);
  std::iota(training.begin(), training.end(), std::size_t{0});
  std::iota(validation.begin(), validation.end(), training_rows);
  check(validation.empty() || spec.held_out == 0, "a source with a test split holds nothing out");
  if (spec.held_out > 0) validation = hold_out(source, spec, training);
  std::vector<ShardPlan> plan;
  add_split(plan, std::move(training), true, spec, row_bytes);
  add_split(plan, std::move(validation), false, spec, row_bytes);
  return plan;
}

std::string say_not_held_out(const Source& source, const PackSpec& spec,
                             const std::vector<ShardPlan>& plan) {
  if (spec.held_out == 0) return {};
  Rows counts(source.classes().size()), held = counts;
  for (const ShardPlan& shard : plan)
    for (const std::size_t row : shard.rows) {
      const auto label = static_cast<std::size_t>(source.label(row));
      ++counts[label];
      if (!shard.training) ++held[label];
    }
  std::vector<std::string> without;
  for (std::size_t c = 0; c < counts.size(); ++c)
    if (counts[c] > 0 && held[c] == 0) without.push_back(source.classes()[c]);
  if (without.empty()) return {};
  if (std::any_of(held.begin(), held.end(), [](std::size_t rows) { return rows > 0; })) {
    constexpr std::size_t listed = 5;
    const std::size_t all = without.size();
    without.resize(std::min(listed, all));
    return fmt::format("{} of {} have too few images to hold one out, and no validation row: {}{}",
                       all, counted(counts.size(), "class"), join(without, ", "),
                       all > listed ? ", ..." : "");
  }
  const std::size_t most = *std::max_element(counts.begin(), counts.end());
  const std::string none =
      fmt::format("no validation set: {:g} % of the rows of each class is less than half a row",
                  100 * spec.held_out);
  if (most < 2) return none + ", and no class has two; name images to validate on (--val)";
  // Rounded up to whole percents, so that the largest class gives a row.
  const double enough = std::ceil(50 / static_cast<double>(most)) / 100;
  return none + fmt::format("; give --held-out {:g} or more, or --val", enough);
}

namespace {

/// Calls `look` with the rows in turn, until it meets one that is readable.
template <class Look>
void look_at_first(const Source& source, const PackSpec& spec, const Look& look) {
  for (std::size_t row = 0; row < source.rows(); ++row) {
    try {
      return look(row);
    } catch (const InputError&) {
      if (!spec.skip_bad) throw;
    }
  }
}

/// The channels that images in files have if they are packed as uint16; 0: they are not.
std::size_t channels_as_u16(const Source& source, const PackSpec& spec) {
  std::size_t channels = 0;
  if (spec.jpeg || spec.element == data::Element::u8) return channels;
  look_at_first(source, spec, [&](std::size_t row) {
    channels = data::channels_of_16_bits(source.read_file(row));
    require(
        channels > 0 || !spec.element,
        fmt::format("{}: is no PNG of 16 bits, which --element uint16 is for", source.name(row)));
  });
  return channels;
}

}  // namespace

data::DataSetInfo packed_info(const Source& source, const PackSpec& spec) {
  data::DataSetInfo info;
  info.rows = source.rows();
  info.classes = source.classes();
  info.task = source.task();
  require(!spec.jpeg || info.task == data::Task::classes,
          fmt::format("{}: has {}, which shards of pixels hold: not with --jpeg", source.name(0),
                      choice_name(info.task)));
  const std::size_t deep = channels_as_u16(source, spec);
  if (deep > 0) info.element = data::Element::u16;
  const std::size_t native = deep > 0 ? deep : source.native_channels();
  info.channels = spec.channels > 0 ? spec.channels : native;
  require(native == 1 || native == 3 || (!spec.jpeg && info.channels == native),
          fmt::format("{}: has {} channels, which can be packed as they are, but not as JPEGs or "
                      "with --channels",
                      source.name(0), native));
  if (const data::DataSetInfo* stored = source.stored(); stored != nullptr) {
    require(stored->has_plain_bytes() || (!spec.jpeg && info.channels == native),
            fmt::format("{}: has {} of {}, which are packed as they are: not with --jpeg or "
                        "--channels",
                        source.name(0), counted(native, "channel"), say_values(*stored)));
    info.element = stored->element;
    info.no_data = stored->no_data;
    if (info.channels == native) info.channel_names = stored->channel_names;
  }
  info.mean.assign(info.channels, 0);
  info.stddev.assign(info.channels, 1);
  if (spec.jpeg) {
    info.encoding = data::Encoding::jpeg;
    return info;
  }
  info.height = spec.height;
  info.width = spec.width;
  if (info.height == 0)
    look_at_first(source, spec, [&](std::size_t row) {
      const data::Image image = read_image(source, spec, info.element, row);
      info.height = image.height;
      info.width = image.width;
    });
  require(info.height > 0, fmt::format("none of the {} images is readable; the first: {}",
                                       source.rows(), source.name(0)));
  return info;
}

}  // namespace lockstep::pack
