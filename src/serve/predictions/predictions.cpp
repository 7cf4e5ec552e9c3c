#include "serve/predictions/predictions.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <span>
#include <string_view>
#include <type_traits>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/h5.hpp"
#include "lockstep/base/files/h5_writer.hpp"
#include "lockstep/base/files/io.hpp"

namespace lockstep::serve {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t small = 1 << 16;   // HDF5's own part of a file
constexpr std::size_t seal_bytes = 512;  // HDF5's smallest user block
constexpr std::string_view seal_begin = "lockstep part 2\n";
constexpr std::size_t longest_job = 64;

/// What is before a part's HDF5.
std::string seal(const PartOf& part, std::uint32_t checksum, std::size_t bytes) {
  std::string text = fmt::format("{}job {}\nrows {} from {}\ncrc32c 0x{:08x}\nbytes {}\n",
                                 seal_begin, part.job, part.rows, part.first, checksum, bytes);
  text.resize(seal_bytes, '\0');
  return text;
}

/// [rows, width], or [rows] for one number a row.
std::vector<std::size_t> shape_of(std::size_t rows, std::size_t width) {
  return width == 1 ? std::vector{rows} : std::vector{rows, width};
}

void write_unread(h5::Writer& file, const std::vector<UnreadRow>& unread) {
  if (unread.empty()) return;
  std::vector<std::uint64_t> rows;
  std::vector<std::string> reasons;
  for (const UnreadRow& one : unread) {
    rows.push_back(one.row);
    reasons.push_back(one.reason);
  }
  const std::size_t count = rows.size();
  file.data_set("unread_row", {&count, 1}, rows.data());
  file.data_set("unread_reason", reasons, h5::Ending::padding);
}

/// In memory, because HDF5 cannot end cleanly on a full disk.
h5::FileImage image_of(const fs::path& path, const Predictions& part, const std::string& job) {
  const h5::Session session;
  std::size_t bytes = small;
  Predictions::numbers(part, [&](const char*, const auto& values, std::size_t) {
    bytes += values.size() * sizeof values[0];
  });
  h5::Writer file = h5::Writer::in_memory(path, {.bytes = bytes, .user_block = seal_bytes});
  Predictions::numbers(part, [&](const char* name, const auto& values, std::size_t width) {
    file.data_set(name, shape_of(part.rows(), width), values.data());
  });
  if (part.columns.name_bytes > 0) file.data_set("name", part.name, h5::Ending::padding);
  write_unread(file, part.unread);
  h5::FileImage image = file.take_image();
  const std::span<char> whole = image.bytes(), inner = whole.subspan(seal_bytes);
  const std::string head =
      seal({job, part.row.front(), part.rows()}, crc32c(inner.data(), inner.size()), inner.size());
  std::copy(head.begin(), head.end(), whole.begin());
  return image;
}

/// Names may be longer than other programs' texts are.
std::vector<std::string> texts_in(const h5::File& file, const fs::path& path, const char* name) {
  const h5::Item item = h5::Item::data_set(file.get(), path, name);
  item.expect_plain();
  return item.read_plain_strings();
}

std::vector<UnreadRow> read_unread(const h5::File& file, const fs::path& path, std::size_t most) {
  std::vector<UnreadRow> unread;
  const std::vector<std::string> names = h5::names_in(file, path, "/");
  if (std::find(names.begin(), names.end(), "unread_row") == names.end()) return unread;
  const auto rows = h5::Item::data_set(file.get(), path, "unread_row").numbers<std::uint64_t>(most);
  const std::vector<std::string> reasons = texts_in(file, path, "unread_reason");
  require(rows.size() == reasons.size(),
          fmt::format("{}: has other numbers of unread rows and of reasons", path.string()));
  for (std::size_t i = 0; i < rows.size(); ++i) unread.push_back({rows[i], reasons[i]});
  return unread;
}

/// Reads the columns that `table` has.
Predictions read_table(const fs::path& path, const PredictionColumns& columns) {
  const h5::Session session;
  const h5::File file = h5::open_file(path);
  Predictions table;
  table.columns = columns;
  std::size_t rows = 0;
  Predictions::numbers(table, [&](const char* name, auto& values, std::size_t width) {
    const h5::Item item = h5::Item::data_set(file.get(), path, name);
    item.expect_plain();
    values.resize(item.count());
    item.read(std::span(values));
    if (rows == 0) rows = values.size();
    if (values.size() != rows * width) item.refuse("has another number of rows");
  });
  if (columns.name_bytes > 0) table.name = texts_in(file, path, "name");
  require(columns.name_bytes == 0 || table.name.size() == rows,
          fmt::format("{}: has other numbers of rows and of names", path.string()));
  table.unread = read_unread(file, path, rows);
  return table;
}

/// Where the columns of the merged file begin, in its bytes.
struct Skeleton {
  std::vector<std::uint64_t> numbers;  ///< in the order of Predictions::numbers()
  std::uint64_t names = 0;
};

Skeleton write_skeleton(const PendingFile& pending, const fs::path& path, const PartOf& all,
                        const PredictionColumns& columns, const std::vector<UnreadRow>& unread,
                        const std::vector<std::string>& classes) {
  const h5::Session session;
  const std::size_t rows = all.rows;
  h5::Writer file = h5::Writer::on_disk(pending.temporary(), path, small);
  file.attribute("job", {}, all.job, h5::Ending::padding);
  file.data_set("classes", classes, h5::Ending::padding);
  write_unread(file, unread);
  Skeleton places;
  Predictions none;
  none.columns = columns;
  Predictions::numbers(none, [&](const char* name, const auto& values, std::size_t width) {
    using Number = typename std::decay_t<decltype(values)>::value_type;
    places.numbers.push_back(file.reserve<Number>(name, shape_of(rows, width)));
  });
  if (columns.name_bytes > 0) places.names = file.reserve_texts("name", rows, columns.name_bytes);
  file.close();
  return places;
}

std::size_t bytes_of_row(const PredictionColumns& columns) {
  std::size_t bytes = columns.name_bytes;
  Predictions none;
  none.columns = columns;
  Predictions::numbers(none, [&](const char*, const auto& values, std::size_t width) {
    bytes += width * sizeof values[0];
  });
  return bytes;
}

/// Finds out that the disk is full before HDF5 does. Does nothing where a file system cannot
/// reserve.
void require_room(const fs::path& path, std::size_t bytes) {
  const PendingFile tried(path);
  const Descriptor file(::open(tried.temporary().c_str(), O_WRONLY | O_CLOEXEC));
  const bool full = file && ::fallocate(file.get(), 0, 0, static_cast<off_t>(bytes)) != 0 &&
                    (errno == ENOSPC || errno == EDQUOT);
  if (full) fail_by_system("cannot write " + path.string(), errno);
}

}  // namespace

bool publish_part(const fs::path& path, const Predictions& part, const std::string& job) {
  const h5::FileImage image = image_of(path, part, job);
  return publish_text(path, {image.bytes().data(), image.bytes().size()});
}

std::optional<std::string> why_no_part(const fs::path& path, const PartOf& part) try {
  std::string head;
  std::uint32_t checksum = 0;
  std::size_t bytes = 0;
  read_in_pieces(path, [&](std::string_view piece) {
    const std::size_t of_head = std::min(seal_bytes - head.size(), piece.size());
    head += piece.substr(0, of_head);
    piece.remove_prefix(of_head);
    checksum = crc32c(piece.data(), piece.size(), checksum);
    bytes += piece.size();
  });
  if (head == seal(part, checksum, bytes)) return std::nullopt;
  const std::string begin = seal(part, 0, 0);  // which differs after these words
  const bool this_part = head.starts_with(std::string_view(begin).substr(0, begin.find("crc32c")));
  const bool a_part = head.starts_with(seal_begin);
  return fmt::format("{}: {}", path.string(),
                     this_part ? "is torn or was altered: its checksum does not fit"
                     : a_part  ? "has other rows, or is of another job"
                               : "is no part of predictions, or its beginning is damaged");
} catch (const InputError& error) {
  return error.what();
}

Predictions read_part(const fs::path& path, const PredictionColumns& columns) {
  return read_table(path, columns);
}

bool publish_merged(const fs::path& path, const std::vector<fs::path>& parts,
                    const PredictionColumns& columns, const PartOf& all,
                    const std::vector<std::string>& classes) {
  const std::size_t rows = all.rows;
  require_room(path, rows * bytes_of_row(columns) + small);
  std::vector<UnreadRow> unread;
  for (const fs::path& part : parts) {
    const h5::Session session;
    const std::vector<UnreadRow> more = read_unread(h5::open_file(part), part, rows);
    unread.insert(unread.end(), more.begin(), more.end());
  }
  PendingFile pending(path);
  const Skeleton places = write_skeleton(pending, path, all, columns, unread, classes);
  const Descriptor out(::open(pending.temporary().c_str(), O_WRONLY | O_CLOEXEC));
  const auto write = [&](const void* from, std::size_t bytes, std::uint64_t at) {
    if (!out || write_all_at(out.get(), from, bytes, at) != bytes)
      fail_by_system("cannot write " + path.string(), errno);
  };
  std::size_t done = 0;
  for (const fs::path& from : parts) {
    const Predictions part = read_table(from, columns);
    require(done + part.rows() <= rows && part.row.front() == done,
            fmt::format("{}: does not begin at row {}", from.string(), done));
    std::size_t column = 0;
    Predictions::numbers(part, [&](const char*, const auto& values, std::size_t width) {
      write(values.data(), values.size() * sizeof values[0],
            places.numbers[column++] + done * width * sizeof values[0]);
    });
    std::string names;
    for (std::size_t row = 0; row < part.name.size(); ++row) {
      names += part.name[row].substr(0, columns.name_bytes);
      names.resize((row + 1) * columns.name_bytes);
    }
    write(names.data(), names.size(), places.names + done * columns.name_bytes);
    done += part.rows();
  }
  require(done == rows, fmt::format("{}: the parts have {} of {} rows", path.string(), done, rows));
  return pending.publish();
}

namespace {

/// A field of CSV (RFC 4180). A control character in it would make lines that are no rows, or
/// command a terminal.
std::string csv_field(const std::string& text) {
  std::string field;
  bool plain = true;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    plain = plain && c != ',' && c != '"';
    if (byte < ' ' || byte == 0x7F)
      field += fmt::format("\\x{:02x}", byte);
    else
      field += c == '"' ? std::string("\"\"") : std::string(1, c);
  }
  return plain ? field : '"' + field + '"';
}

std::string csv_head(const PredictionColumns& columns, const std::vector<std::string>& names) {
  std::string text = "row";
  if (columns.name_bytes > 0) text += ",file";
  if (columns.labels) text += ",label";
  for (std::size_t k = 1; k <= columns.top; ++k)
    text += fmt::format(",class_{},probability_{}", k, k);
  if (columns.probabilities > 0) text += ",labels";
  for (std::size_t k = 0; k < columns.probabilities; ++k)
    text += ',' + csv_field("probability_" + names.at(k));
  for (std::size_t k = 0; k < columns.values; ++k) text += ',' + csv_field("value_" + names.at(k));
  return text + '\n';
}

/// The fields of a row of labels, or of values; `names` are not fields yet.
std::string csv_outputs(const Predictions& table, std::size_t row,
                        const std::vector<std::string>& names) {
  const std::size_t labels = table.columns.probabilities, values = table.columns.values;
  std::string text, said;
  for (std::size_t k = 0; k < labels; ++k)
    if (table.probability[row * labels + k] > 0.5f) said += (said.empty() ? "" : ";") + names.at(k);
  if (labels > 0) text += ',' + csv_field(said);
  const std::span<const float> numbers =
      labels > 0 ? std::span(table.probability).subspan(row * labels, labels)
                 : std::span(table.value).subspan(row * values, values);
  for (const float number : numbers) {
    text += ',';
    if (!std::isnan(number)) text += fmt::format("{}", number);
  }
  return text;
}

/// `classes`: a field for each of `names`.
std::string csv_rows(const Predictions& table, const std::vector<std::string>& classes,
                     const std::vector<std::string>& names) {
  const PredictionColumns& columns = table.columns;
  const auto class_field = [&](std::int32_t index) {
    return index < 0 ? std::string() : classes.at(static_cast<std::size_t>(index));
  };
  std::string text;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    text += std::to_string(table.row[r]);
    if (columns.name_bytes > 0) text += ',' + csv_field(table.name[r]);
    if (columns.labels) text += ',' + class_field(table.label[r]);
    for (std::size_t at = r * columns.top; at < (r + 1) * columns.top; ++at) {
      text += ',' + class_field(table.top_class[at]) + ',';
      if (table.top_class[at] >= 0) text += fmt::format("{}", table.top_probability[at]);
    }
    text += csv_outputs(table, r, names) + '\n';
  }
  return text;
}

std::string job_of(const fs::path& merged) {
  const h5::Session session;
  const h5::File file = h5::open_file(merged);
  return h5::Item::attribute(file.get(), merged, "job").text(longest_job);
}

}  // namespace

bool publish_csv(const fs::path& path, const std::vector<fs::path>& parts,
                 const PredictionColumns& columns, const std::vector<std::string>& classes) {
  PredictionColumns wanted = columns;
  wanted.logits = wanted.features = 0;
  std::vector<std::string> fields;
  for (const std::string& name : classes) fields.push_back(csv_field(name));
  PendingPieces file(path, 0);
  file.add(csv_head(columns, classes));
  for (const fs::path& part : parts) file.add(csv_rows(read_table(part, wanted), fields, classes));
  return file.publish();
}

void require_whole_csv(const fs::path& path, std::size_t rows, const PredictionColumns& columns,
                       const std::vector<std::string>& classes) {
  const std::string wanted_head = csv_head(columns, classes);
  std::string head;
  char last = 0;
  std::size_t lines = 0;
  read_in_pieces(path, [&](std::string_view piece) {
    head += piece.substr(0, wanted_head.size() - head.size());
    lines += static_cast<std::size_t>(std::ranges::count(piece, '\n'));
    if (!piece.empty()) last = piece.back();
  });
  require(head == wanted_head,
          fmt::format("{}: does not begin with the names of these columns", path.string()));
  require(lines == rows + 1 && last == '\n',
          fmt::format("{}: has {} of {} rows{}", path.string(), lines - 1, rows,
                      last == '\n' ? "" : ", and a part of one"));
}

PredictionCounts count_predictions(const fs::path& merged, const PredictionColumns& columns,
                                   const PartOf& all) {
  PredictionColumns wanted = columns;
  wanted.logits = wanted.features = wanted.name_bytes = 0;
  const Predictions table = read_table(merged, wanted);
  require(table.rows() == all.rows && job_of(merged) == all.job,
          fmt::format("{}: has other rows, or is of another job", merged.string()));
  PredictionCounts counts{.rows = table.rows(), .unread = table.unread.size()};
  const std::vector<float>& outputs = columns.values > 0 ? table.value : table.probability;
  for (std::size_t r = 0; r < table.rows(); ++r) {
    if (columns.top == 0) {
      const std::size_t width = columns.values + columns.probabilities;
      const auto of_row = std::span(outputs).subspan(r * width, width);
      counts.no_numbers += std::ranges::any_of(of_row, [](float x) { return std::isnan(x); });
      continue;
    }
    const std::int32_t first = table.top_class[r * columns.top];
    if (first < 0) ++counts.no_numbers;
    if (!columns.labels || table.label[r] < 0) continue;
    ++counts.labelled;
    if (table.label[r] == first) ++counts.right;
  }
  counts.no_numbers -= counts.unread;
  return counts;
}

}  // namespace lockstep::serve
