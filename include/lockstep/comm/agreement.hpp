#pragma once

#include <algorithm>
#include <exception>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/error.hpp"
#include "lockstep/comm/communicator.hpp"
#include "lockstep/comm/control.hpp"
#include "lockstep/comm/record.hpp"

namespace lockstep::comm {

/// Compares a text of all ranks. Empty when they agree; else each text with its ranks, the most
/// common first: "1f2e3d4c on ranks 0-2, but 00000000 on rank 3". Collective; all ranks get the
/// same answer.
std::string disagreement(Control& control, const std::string& mine, std::string_view phase);

/// Why a rank could not do its part.
struct Failure {
  bool input = false;  ///< the input was at fault
  std::string text;
  static void fields(auto& self, auto&& visit) { visit(self.input, self.text); }
};

/// Runs `work` on every rank. If it fails on any, all throw the same error, that of the lowest
/// failing rank, which it names unless that is rank 0: mostly this is the rank that says it. So no
/// rank waits for one that is gone, and all can tidy up.
template <class Work>
void together(Control& control, std::string_view phase, Work work) {
  std::optional<Failure> failure;
  try {
    work();
  } catch (const InputError& error) {
    failure = {true, error.what()};
  } catch (const std::bad_alloc&) {
    failure = {false, "out of memory"};
  } catch (const std::exception& error) {
    failure = {false, error.what()};
  }
  if (failure && control.rank() > 0)
    failure->text += " (on rank " + std::to_string(control.rank()) + ")";
  const std::string none = write_record(std::optional<Failure>());
  const auto first = [&none](const std::vector<std::string>& all) {
    return *std::find_if(all.begin(), all.end() - 1, [&](auto& one) { return one != none; });
  };
  const auto found =
      read_record<std::optional<Failure>>(control.combine(write_record(failure), phase, first));
  if (found && found->input) throw InputError(found->text);
  if (found) throw Error(found->text);
}

/// What every Communicator asks of a verb's arguments. These throw Error, which begins with `name`.

/// True when there is work: more than one rank and more than no elements.
bool has_work(Communicator& group, Elements data, std::string_view name, device::Stream& stream);
/// The elements of each rank's chunk.
std::size_t chunk_size(Communicator& group, Elements data, std::string_view name);
/// Elements of 8 bits have no sum and no maximum.
void check_reducible(Elements data, std::string_view name);
/// `root` must be a rank of the group.
void check_root(Communicator& group, int root, std::string_view name);
/// `peer` must be another rank of the group; a group of one may name itself.
void check_peer(Communicator& group, int peer, std::string_view name);

}  // namespace lockstep::comm
