#include "observe/tensorboard/events.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <concepts>

#include <fmt/format.h>

#include "lockstep/base/crc32c.hpp"
#include "lockstep/base/text/numbers.hpp"
#include "lockstep/base/text/words.hpp"
#include "lockstep/config/keys.hpp"
#include "lockstep/observe/tensorboard/session.hpp"

namespace lockstep::observe {
namespace {

WireMessage event_at(double time_s, std::uint64_t step) {
  return WireMessage().real64(1, time_s).number(2, step);
}

/// As event_at() wrote it.
std::optional<std::uint64_t> step_of_event(std::string_view event) {
  constexpr std::size_t time = 1 + 8;  // with its key
  if (event.size() <= time || event[time] != 2 << 3) return std::nullopt;
  std::uint64_t step = 0;
  for (std::size_t i = time + 1, shift = 0; i < event.size() && shift < 64; ++i, shift += 7) {
    step |= std::uint64_t{static_cast<unsigned char>(event[i]) & 0x7fu} << shift;
    if (static_cast<unsigned char>(event[i]) < 0x80) return step;
  }
  return std::nullopt;
}

/// An event whose only value is one of the plugin for hyperparameters: an empty tensor of floats,
/// whose metadata say all.
WireMessage hparams_event(double time_s, const char* tag, std::uint32_t field,
                          const WireMessage& info) {
  const WireMessage shape = WireMessage().message(2, WireMessage().number(1, 0));
  const WireMessage tensor = WireMessage().number(1, 1).message(2, shape);
  const WireMessage content = WireMessage().number(1, 0).message(field, info);
  const WireMessage plugin = WireMessage().text(1, "hparams").message(2, content);
  const WireMessage metadata = WireMessage().message(1, plugin);
  const WireMessage value = WireMessage().text(1, tag).message(8, tensor).message(9, metadata);
  return event_at(time_s, 0).message(5, WireMessage().message(1, value));
}

/// A key's value as a google.protobuf.Value.
WireMessage hparam_value(const config::ConfigKey& key, const std::string& text) {
  if (key.kind == config::TomlKind::boolean) return WireMessage().number(4, text == "true");
  const auto number = real_number(text);
  if (key.kind == config::TomlKind::number && number) return WireMessage().real64(2, *number);
  return WireMessage().text(3, valid_utf8(text));
}

void put_hparam(WireMessage& info, const std::string& name, const WireMessage& value) {
  info.message(1, WireMessage().text(1, name).message(2, value));
}

WireMessage session_start(double time_s, WireMessage& info) {
  info.real64(5, time_s);
  return hparams_event(time_s, "_hparams_/session_start_info", 3, info);
}

/// Visits a record's fields and collects its numbers as values of a summary.
class Curves {
 public:
  explicit Curves(std::string_view section) : section_(section) {}

  template <class Value>
  void operator()(const std::string& name, const Value& value, Form form = Form::plain) {
    put(name, value, form);
  }
  template <class Value>
  void later(const char* name, const Value& value, Form form = Form::plain) {
    put(name, value, form);
  }
  template <class Fields>
  void group(const char*, const std::optional<Fields>& fields) {
    if (fields) Fields::fields(*fields, *this);
  }
  void stamp(const char*, std::uint64_t) {}
  void unless_empty(const char*, const std::vector<std::string>&) {}
  /// Each score has a curve: "val_scores" makes val_mAP.
  void unless_empty(std::string_view name, const Scores& scores) {
    name.remove_suffix(std::string_view("scores").size());
    for (const auto& [score, value] : scores) put(std::string(name) + score, value, Form::mean);
  }

  const WireMessage& summary() const { return summary_; }

 private:
  /// What only counts steps and rows.
  static bool is_counter(std::string_view name) {
    constexpr std::array<std::string_view, 7> counters = {
        "step", "epoch", "last_step", "until_step", "steps", "rows", "samples"};
    return std::find(counters.begin(), counters.end(), name) != counters.end();
  }
  void add(const std::string& name, double value, Form form) {
    const std::string_view section = section_ == "train" && form == Form::ms ? "time" : section_;
    summary_.message(1, WireMessage()
                            .text(1, fmt::format("{}/{}", section, name))
                            .real32(2, static_cast<float>(value)));
  }
  template <std::integral Value>
  void put(const std::string& name, Value value, Form form) {
    if (!is_counter(name)) add(name, static_cast<double>(value), form);
  }
  void put(const std::string& name, double value, Form form) {
    if (!std::isfinite(value)) return;
    add(name, real_number(number_text(value, form)).value_or(value), form);
  }
  void put(const std::string& name, float value, Form form) {
    if (std::isfinite(value)) add(name, value, form);
  }
  template <class Value>
  void put(const std::string& name, const std::optional<Value>& value, Form form) {
    if (value) put(name, *value, form);
  }
  void put(const std::string& name, const Spread& spread, Form form) {
    put(name + "_min_ms", spread.min_ms, Form::ms);
    put(name + "_median_ms", spread.median_ms, Form::ms);
    put(name + "_max_ms", spread.max_ms, Form::ms);
    put(name + "_slowest", spread.slowest, form);
  }

  std::string_view section_;
  WireMessage summary_;
};

template <class One>
WireMessage summary_of(const One& record, const char* section) {
  Curves curves(section);
  One::fields(record, curves);
  return curves.summary();
}

}  // namespace

std::uint32_t masked_crc32c(std::string_view bytes) {
  const std::uint32_t crc = crc32c(bytes.data(), bytes.size());
  return (crc >> 15 | crc << 17) + 0xa282ead8;
}

std::string framed(const WireMessage& event) {
  std::string frame;
  put_little_endian(frame, event.bytes().size(), 8);
  put_little_endian(frame, masked_crc32c(frame), 4);
  frame += event.bytes();
  put_little_endian(frame, masked_crc32c(event.bytes()), 4);
  return frame;
}

std::size_t bytes_before(std::string_view file, std::uint64_t step) {
  constexpr std::size_t around = 8 + 4 + 4;  // the event
  for (std::size_t at = 0; file.size() - at >= around;) {
    const std::string_view length = file.substr(at, 8);
    const std::uint64_t bytes = from_little_endian(length);
    if (from_little_endian(file.substr(at + 8, 4)) != masked_crc32c(length) ||
        bytes > file.size() - at - around)
      break;
    if (step_of_event(file.substr(at + 12, bytes)).value_or(0) >= std::max<std::uint64_t>(step, 1))
      return at;
    at += around + bytes;
  }
  return file.size();
}

WireMessage version_event(double time_s) {
  return WireMessage()
      .real64(1, time_s)
      .text(3, "brain.Event:2")
      .message(10, WireMessage().text(1, "lockstep"));
}

WireMessage restart_event(double time_s, std::uint64_t step) {
  constexpr std::uint64_t start = 1;  // of SessionLog.SessionStatus
  return event_at(time_s, step).message(7, WireMessage().number(1, start));
}

WireMessage session_start_event(double time_s, const config::Config& config,
                                const StartRecord& start) {
  WireMessage info;
  for (const config::ConfigKey& key : config::config_keys())
    if (key.changes_results) put_hparam(info, key.name, hparam_value(key, key.get(config)));
  put_hparam(info, "ranks", WireMessage().real64(2, static_cast<double>(start.ranks)));
  return session_start(time_s, info);
}

WireMessage session_end_event(double time_s, bool success) {
  const WireMessage info = WireMessage().number(1, success ? 1 : 2).real64(2, time_s);
  return hparams_event(time_s, "_hparams_/session_end_info", 4, info);
}

std::string session_file(const TrialSession& session) {
  WireMessage info;
  for (const std::string& name : session.keys) {
    const config::ConfigKey& key = *config::find_key(name);
    put_hparam(info, name, hparam_value(key, key.get(session.config)));
  }
  std::string events = framed(version_event(session.time_s));
  events += framed(session_start(session.time_s, info));
  for (const auto& [epoch, score] : session.scores) {
    if (!std::isfinite(score)) continue;
    const WireMessage value =
        WireMessage().text(1, "score/" + session.score_name).real32(2, static_cast<float>(score));
    events += framed(event_at(session.time_s, epoch).message(5, WireMessage().message(1, value)));
  }
  if (session.succeeded) events += framed(session_end_event(session.time_s, *session.succeeded));
  return events;
}

std::optional<std::uint64_t> step_of_curves(const Record& record) {
  if (const auto* step = std::get_if<StepRecord>(&record)) return step->step;
  if (const auto* epoch = std::get_if<EpochRecord>(&record)) return epoch->step;
  if (const auto* ranks = std::get_if<RanksRecord>(&record)) return ranks->step;
  return std::nullopt;
}

std::optional<WireMessage> curves_event(const Record& record) {
  const auto event = [](const auto& one, const char* section) {
    return event_at(static_cast<double>(one.time_ms) / 1e3, one.step)
        .message(5, summary_of(one, section));
  };
  if (const auto* step = std::get_if<StepRecord>(&record)) return event(*step, "train");
  if (const auto* epoch = std::get_if<EpochRecord>(&record)) return event(*epoch, "epoch");
  if (const auto* ranks = std::get_if<RanksRecord>(&record)) return event(*ranks, "ranks");
  return std::nullopt;
}

}  // namespace lockstep::observe
