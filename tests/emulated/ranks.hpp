#pragma once

// Ranks that are threads of this process, each with its own emulated GPU.

#include <cuda_runtime.h>

#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/control.hpp"
#include "tests/emulated/cuda/gpu.hpp"

namespace lockstep::test {
using comm::Control;

/// Where the threads of a world meet.
struct Table {
  explicit Table(int ranks) : said(static_cast<std::size_t>(ranks)) {}
  std::mutex mutex;
  std::condition_variable turned;
  std::vector<std::string> said, heard;
  std::size_t arrived = 0, turns = 0;
};

class TableControl final : public Control {
 public:
  TableControl(Table& table, int rank) : table_(table), rank_(rank) {}
  int rank() const override { return rank_; }
  int world() const override { return static_cast<int>(table_.said.size()); }

 private:
  std::string meet(const std::string& mine, std::string_view, const Combine& combine) override {
    std::unique_lock lock(table_.mutex);
    table_.said[static_cast<std::size_t>(rank_)] = mine;
    const std::size_t turn = table_.turns;
    if (++table_.arrived == table_.said.size()) {
      table_.heard = table_.said;
      table_.arrived = 0;
      ++table_.turns;
      table_.turned.notify_all();
    }
    table_.turned.wait(lock, [&] { return table_.turns != turn; });
    return combine(table_.heard);
  }
  Table& table_;
  int rank_;
};

/// What a rank reports, or the error that ended it.
using Story = std::function<std::string(Control&)>;

inline std::vector<std::string> ranks_tell(int world, const Story& story) {
  emulated::conditions().devices = world;
  Table table(world);
  std::vector<std::future<std::string>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::async(std::launch::async, [&, rank] {
      cudaSetDevice(rank);
      TableControl control(table, rank);
      try {
        return story(control);
      } catch (const std::exception& error) {
        return std::string(error.what());
      }
    }));
  std::vector<std::string> told;
  for (auto& rank : ranks) told.push_back(rank.get());
  emulated::conditions() = {};
  return told;
}

}  // namespace lockstep::test
