#pragma once

// The bytes of TensorBoard's event files. A file is a row of framed events; an event is a message
// of protocol buffers (tensorboard/compat/proto/{event,summary}.proto,
// tensorboard/plugins/hparams/plugin_data.proto):
//
//   length, 8 bytes | masked CRC-32C of these | event | masked CRC-32C of the event
//
// Numbers are little-endian. The first event says the version; times are seconds since 1970.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/base/wire.hpp"
#include "lockstep/config/config.hpp"
#include "lockstep/observe/records.hpp"

namespace lockstep::observe {

/// The checksum of a frame: that of the bytes, rotated, plus a constant, so that it says something
/// of bytes that hold a checksum, too.
std::uint32_t masked_crc32c(std::string_view bytes);
std::string framed(const WireMessage& event);

/// How many bytes of a file come before its first event of this step or a later one; all of them
/// where there is none, or where something damaged comes first.
std::size_t bytes_before(std::string_view file, std::uint64_t step);

WireMessage version_event(double time_s);
/// Readers forget what earlier files of the folder say of this step and later ones.
WireMessage restart_event(double time_s, std::uint64_t step);
/// The configuration's keys that change results, and the ranks, for the page HPARAMS.
WireMessage session_start_event(double time_s, const config::Config& config,
                                const StartRecord& start);
WireMessage session_end_event(double time_s, bool success);
/// The points that a record adds to curves: its numbers as metrics.jsonl has them, after the step
/// that it is about. Empty for a record without any. Tags are the fields' names: train/ and time/
/// (those in ms) of a step, epoch/ of an epoch, ranks/data_max_ms and so on of ranks.
std::optional<WireMessage> curves_event(const Record& record);

/// The step that a record of curves is about.
std::optional<std::uint64_t> step_of_curves(const Record& record);

}  // namespace lockstep::observe
