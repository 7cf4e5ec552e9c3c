#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/cluster/topology/bind.hpp"

namespace lockstep::observe {

/// What reading a binding back found.
struct ReadBack {
  std::string process_cpus;
  int memory_node = -1;
  std::map<std::string, std::size_t> threads;
  std::map<std::string, std::map<std::string, std::size_t>> pages;  ///< by what, by NUMA node
  std::optional<double> upload_bytes_per_s;
  std::vector<std::string> failures;

  static void fields(auto& self, auto&& visit) {
    visit("process_cpus", self.process_cpus);
    visit.later("memory_node", self.memory_node);
    visit.later("threads", self.threads);
    visit.later("pages", self.pages);
    visit.nullable("upload_bytes_per_s", self.upload_bytes_per_s);
    visit.later("failures", self.failures);
  }
};

/// Where one rank runs: an entry of binding.json. CPU sets are texts ("0-3,8"). The members mean
/// what they do in cluster::Plan and cluster::BindingReport.
struct RankBinding {
  int rank = 0, world = 1, local_rank = 0, local_size = 1;
  std::string host, authority;
  std::vector<std::string> ignored;
  std::string share;
  int numa_node = -1;
  std::vector<std::string> compute;  ///< of each compute thread
  std::string loader;
  bool loader_shares_cores = false;
  std::string gpu, network;
  std::vector<std::string> remarks;
  std::optional<bool> ok;             ///< empty: planned only
  std::optional<ReadBack> read_back;  ///< empty: planned only

  static void fields(auto& self, auto&& visit) {
    visit("rank", self.rank);
    visit.later("world", self.world);
    visit.later("local_rank", self.local_rank);
    visit.later("local_size", self.local_size);
    visit("host", self.host);
    visit.later("authority", self.authority);
    visit.later("ignored", self.ignored);
    visit.later("share", self.share);
    visit.later("numa_node", self.numa_node);
    visit.later("compute", self.compute);
    visit.later("loader", self.loader);
    visit.later("loader_shares_cores", self.loader_shares_cores);
    visit.later("gpu", self.gpu);
    visit.later("network", self.network);
    visit.later("remarks", self.remarks);
    visit.nullable("ok", self.ok);
    visit.group("process_cpus", self.read_back);
  }
};

/// A plan that was not bound has neither `ok` nor `read_back`.
RankBinding rank_binding(const cluster::Plan& plan, const cluster::RankInfo& rank);
RankBinding rank_binding(const cluster::BindingReport& report, const cluster::RankInfo& rank);

std::string to_json(const std::vector<RankBinding>& bindings);  ///< binding.json

/// binding.json. Throws InputError naming the file, the entry and what is wrong with it.
std::vector<RankBinding> read_bindings(const std::filesystem::path& path);

/// Lines for humans about the ranks whose uploads are slower than half of the fastest one.
std::vector<std::string> slow_uploads(const std::vector<RankBinding>& ranks);

}  // namespace lockstep::observe
