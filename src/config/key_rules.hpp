#pragma once

#include <string>

#include "lockstep/config/config.hpp"

// What the table of keys says of values, held against a configuration.
namespace lockstep::config {

/// Throws InputError naming the key, the value and the range when a value is out of range.
void check_ranges(const Config& config);

/// Throws InputError naming a key that was given but cannot have an effect, and the reason. A value
/// at its default counts as not given, so that a saved configuration, which has all keys, reads
/// back.
void refuse_idle_keys(const Config& config);

/// "unknown key 'lr'; did you mean 'optim.lr'?": what to say about a key that does not exist.
std::string unknown_key(const std::string& name);

}  // namespace lockstep::config
