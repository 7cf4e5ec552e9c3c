#include "lockstep/cluster/identity/ask_slurm.hpp"

#include <array>
#include <cstdio>
#include <memory>

#include <fmt/core.h>

namespace lockstep::cluster {

std::string ask_slurm(const std::string& command) {
  const std::string bounded = fmt::format("timeout 10 {} 2>/dev/null", command);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> answer(popen(bounded.c_str(), "r"), pclose);
  std::array<char, 128> line{};
  if (!answer || !std::fgets(line.data(), line.size(), answer.get())) return "";
  const std::string text = line.data();
  return text.substr(0, text.find_last_not_of(" \n") + 1);
}

}  // namespace lockstep::cluster
