#include "lockstep/cluster/identity/ask_slurm.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <tuple>
#include <utility>

#include "lockstep/base/error.hpp"
#include "lockstep/base/process.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"

namespace lockstep::cluster {
namespace {

using Columns = std::vector<std::string>;

constexpr std::size_t column_width = 40;  // of squeue's columns, which have no mark between them

std::vector<std::string> answer_within_10_s(const std::string& command) {
  return answer_of(fmt::format("SLURM_TIME_FORMAT=%s timeout 10 {} 2>/dev/null", command));
}

Columns of_fixed_width(const std::string& line) {
  Columns columns;
  for (std::size_t at = 0; at < line.size(); at += column_width)
    columns.emplace_back(trimmed(line.substr(at, column_width)));
  return columns;
}

Columns between_bars(const std::string& line) {
  Columns columns;
  for (std::size_t at = 0; at <= line.size();) {
    const std::size_t end = std::min(line.find('|', at), line.size());
    columns.emplace_back(trimmed(line.substr(at, end - at)));
    at = end + 1;
  }
  return columns;
}

}  // namespace

bool is_slurm_job(std::string_view job) {
  const std::size_t bar = std::min(job.find('_'), job.size());
  return whole_number<std::uint64_t>(job.substr(0, bar)) &&
         (bar == job.size() || whole_number<std::uint64_t>(job.substr(bar + 1)));
}

std::string slurm_job(const EnvLookup& env) {
  std::string job = env("SLURM_JOB_ID").value_or("");
  const auto array = env("SLURM_ARRAY_JOB_ID"), task = env("SLURM_ARRAY_TASK_ID");
  if (!job.empty() && array && task) job = *array + "_" + *task;
  return is_slurm_job(job) ? job : "";
}

std::vector<Columns> lines_of_job(const std::vector<Columns>& lines, const std::string& job) {
  std::vector<Columns> found;
  for (const Columns& line : lines)
    if (line.size() > 1 && (line[0] == job || line[1] == job))
      found.emplace_back(line.begin() + 2, line.end());
  return found;
}

Columns ask_squeue(const std::string& job, const Columns& columns) {
  std::vector<Columns> lines;
  std::string wanted;
  for (const std::string& column : columns) wanted += fmt::format(",{}:{}", column, column_width);
  if (is_slurm_job(job))
    for (const std::string& line :
         answer_within_10_s(fmt::format("squeue -h -t all -j {} -O JobID:{},JobArrayID:{}{}", job,
                                        column_width, column_width, wanted)))
      lines.push_back(of_fixed_width(line));
  lines = lines_of_job(lines, job);
  Columns found = lines.empty() ? Columns() : lines.back();
  found.resize(columns.size());
  return found;
}

std::vector<Columns> ask_sacct(const std::string& job, const Columns& columns) {
  std::vector<Columns> lines;
  if (is_slurm_job(job))
    for (const std::string& line : answer_within_10_s(
             fmt::format("sacct -n -P -X -D -j {} -o JobIDRaw,JobID,{}", job, join(columns, ","))))
      lines.push_back(between_bars(line));
  lines = lines_of_job(lines, job);
  for (Columns& line : lines) line.resize(columns.size());
  return lines;
}

namespace {

constexpr std::size_t max_digits = 18;   // such a number fits 64 bits
constexpr std::size_t max_length = 255;  // of a name, without a bracket's digits

bool is_digit(char c) { return c >= '0' && c <= '9'; }

[[noreturn]] void refuse(std::string_view list, std::string_view why) {
  constexpr std::size_t shown = 200;
  throw InputError(fmt::format("host list '{}{}': {}", list.substr(0, shown),
                               list.size() > shown ? "..." : "", why));
}

/// Numbers first to last, written with at least `width` digits.
struct NumberRange {
  std::uint64_t first, last;
  std::size_t width;
};

/// A part of a name: either text or a bracket's ranges.
struct NamePart {
  std::string_view text;
  std::vector<NumberRange> ranges;
  std::size_t choices = 1;
};

std::uint64_t number(std::string_view digits) {
  return whole_number<std::uint64_t>(digits).value_or(0);
}

std::string padded(std::uint64_t value, std::size_t width) {
  return fmt::format("{:0{}}", value, width);
}

NumberRange parse_range(std::string_view list, std::string_view text) {
  const std::size_t dash = text.find('-');
  const std::string_view first = text.substr(0, dash);
  const std::string_view last = dash == text.npos ? first : text.substr(dash + 1);
  for (const std::string_view end : {first, last})
    if (end.empty() || end.size() > max_digits || !std::all_of(end.begin(), end.end(), is_digit))
      refuse(list, fmt::format("'{}' is neither a number nor a range like 01-16", text));
  const NumberRange range{.first = number(first), .last = number(last), .width = first.size()};
  if (range.last < range.first) refuse(list, fmt::format("the range {} runs backward", text));
  return range;
}

NamePart parse_bracket(std::string_view list, std::string_view inside) {
  NamePart piece;
  piece.choices = 0;
  for (std::size_t begin = 0; begin <= inside.size();) {
    const std::size_t end = std::min(inside.find(',', begin), inside.size());
    const NumberRange range = parse_range(list, inside.substr(begin, end - begin));
    const std::uint64_t more = range.last - range.first;  // and one
    if (more >= max_hosts - piece.choices)
      refuse(list, fmt::format("it has more than {} hosts", max_hosts));
    piece.choices += more + 1;
    piece.ranges.push_back(range);
    begin = end + 1;
  }
  return piece;
}

/// Takes the pieces of one name, and the comma after it, from the front of `rest`.
std::vector<NamePart> take_name(std::string_view list, std::string_view& rest) {
  std::vector<NamePart> pieces;
  while (!rest.empty() && rest[0] != ',') {
    if (rest[0] == '[') {
      const std::size_t close = rest.find(']');
      if (close == rest.npos) refuse(list, "a bracket is not closed");
      pieces.push_back(parse_bracket(list, rest.substr(1, close - 1)));
      rest.remove_prefix(close + 1);
    } else {
      const std::size_t end = std::min(rest.find_first_of("[],"), rest.size());
      if (end == 0) refuse(list, "a bracket is closed that was not opened");
      pieces.push_back({rest.substr(0, end), {}, 1});
      rest.remove_prefix(end);
    }
  }
  rest.remove_prefix(std::min<std::size_t>(rest.size(), 1));
  std::size_t length = 0;
  for (const NamePart& piece : pieces) length += std::max<std::size_t>(piece.text.size(), 1);
  if (length > max_length)
    refuse(list, fmt::format("a name is longer than {} characters", max_length));
  return pieces;
}

/// The number at this place among all numbers of a bracket.
std::string chosen(const NamePart& piece, std::size_t choice) {
  for (const NumberRange& range : piece.ranges) {
    const std::uint64_t here = range.last - range.first + 1;
    if (choice < here) return padded(range.first + choice, range.width);
    choice -= here;
  }
  return std::string(piece.text);
}

void append_names(const std::vector<NamePart>& pieces, std::size_t count,
                  std::vector<std::string>& names) {
  for (std::size_t name = 0; name < count; ++name) {
    std::string text;
    std::size_t block = count;  // names that share everything before the piece
    for (const NamePart& piece : pieces) {
      block /= piece.choices;
      text += chosen(piece, name / block % piece.choices);
    }
    names.push_back(std::move(text));
  }
}

/// A name cut before the digits at its end.
struct Cut {
  std::string_view prefix, digits;
};

Cut cut(std::string_view name) {
  std::size_t begin = name.size();
  while (begin > 0 && is_digit(name[begin - 1]) && name.size() - begin < max_digits) --begin;
  return {name.substr(0, begin), name.substr(begin)};
}

std::string text_of(const NumberRange& range) {
  std::string text = padded(range.first, range.width);
  if (range.last > range.first) text += '-' + padded(range.last, range.width);
  return text;
}

std::string text_of(std::string_view prefix, const std::vector<NumberRange>& ranges) {
  std::string text(prefix);
  if (ranges.empty()) return text;
  const bool bare = ranges.size() == 1 && ranges[0].first == ranges[0].last;
  if (!bare) text += '[';
  for (std::size_t i = 0; i < ranges.size(); ++i) text += (i > 0 ? "," : "") + text_of(ranges[i]);
  if (!bare) text += ']';
  return text;
}

}  // namespace

std::vector<std::string> expand_hosts(std::string_view list) {
  std::vector<std::string> names;
  for (std::string_view rest = list; !rest.empty();) {
    const std::vector<NamePart> pieces = take_name(list, rest);
    if (pieces.empty()) continue;  // Slurm also ignores an extra comma
    std::size_t count = 1;
    for (const NamePart& piece : pieces) {
      if (piece.choices > (max_hosts - names.size()) / count)
        refuse(list, fmt::format("it has more than {} hosts", max_hosts));
      count *= piece.choices;
    }
    append_names(pieces, count, names);
  }
  return names;
}

std::string compress_hosts(const std::vector<std::string>& names) {
  std::string list;
  std::string_view prefix;
  std::vector<NumberRange> ranges;
  const auto flush = [&] {
    if (!prefix.empty() || !ranges.empty()) list += (list.empty() ? "" : ",");
    list += text_of(prefix, ranges);
    ranges.clear();
  };
  for (const std::string& name : names) {
    const Cut now = cut(name);
    if (now.prefix != prefix || now.digits.empty() || ranges.empty()) {
      flush();
      prefix = now.prefix;
    }
    if (now.digits.empty()) continue;
    const std::uint64_t value = number(now.digits);
    if (!ranges.empty() && value == ranges.back().last + 1 &&
        padded(value, ranges.back().width) == now.digits)
      ranges.back().last = value;
    else
      ranges.push_back({value, value, now.digits.size()});
  }
  flush();
  return list;
}

std::vector<std::string> sorted_hosts(std::vector<std::string> names) {
  // "10" belongs with "09" when that is in the list, and with "9" otherwise.
  std::set<std::pair<std::string_view, std::size_t>> padded_families;
  for (const std::string& name : names)
    if (const Cut now = cut(name); now.digits.size() > 1 && now.digits[0] == '0')
      padded_families.emplace(now.prefix, now.digits.size());
  using Key = std::tuple<std::string_view, std::size_t, std::uint64_t>;
  std::vector<std::pair<Key, std::size_t>> order;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Cut now = cut(names[i]);
    const bool family = padded_families.contains({now.prefix, now.digits.size()});
    order.emplace_back(Key{now.prefix, family ? now.digits.size() : 0, number(now.digits)}, i);
  }
  std::sort(order.begin(), order.end());
  std::vector<std::string> sorted;
  for (const auto& [key, i] : order) sorted.push_back(names[i]);
  return sorted;
}

}  // namespace lockstep::cluster
