#pragma once

#include <string>

namespace lockstep::config {

/// "unknown key 'lr'; did you mean 'optim.lr'?": what to say about a key that does not exist.
std::string unknown_key(const std::string& name);

}  // namespace lockstep::config
