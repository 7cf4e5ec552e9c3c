#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {

std::vector<ConfigKey> comm_keys() {
  using Section = C::Comm;
  return {
      key("comm.bucket-mb", &C::comm, &Section::bucket_mb,
          "gradients are reduced in buckets of this size (10^6 bytes, or 25MB; 0 or auto: 1 on one "
          "node, 25 "
          "on GPUs, else by what an all-reduce costs, which is measured)")
          .within(0.001, 4096)
          .or_zero()
          .or_auto()
          .size(1e6, false)
          .between_ranks(),
      key("comm.all-reduce", &C::comm, &Section::all_reduce,
          "on CPUs: sum all ranks alike, or first the ranks of a node, in shared memory; auto: the "
          "latter on several nodes with several ranks")
          .between_ranks(),
      key("comm.wire", &C::comm, &Section::wire,
          "the format in which gradients travel: bf16 and fp16 halve their bytes, int8 leaves a "
          "quarter and adds in the next step what rounding left out")
          .between_ranks(),
      key("comm.power-sgd", &C::comm, &Section::power_sgd,
          "gradients of weights travel as products of matrices of this rank (PowerSGD; 0: "
          "whole): a hundredth of the bytes; what a product leaves out is added in the next step")
          .within(0, 8)
          .between_ranks(),
      key("comm.power-sgd-from-epoch", &C::comm, &Section::power_sgd_from_epoch,
          "gradients travel whole before this epoch, counted from 0 (0 or auto: before the warm-up "
          "has ended, optim.warmup-epochs)")
          .or_auto()
          .needs(
              "comm.power-sgd", [](const Config& config) { return config.comm.power_sgd > 0; },
              "gradients travel whole")
          .between_ranks(),
      key("comm.deadline-s", &C::comm, &Section::deadline_s,
          "how long a rank waits for the others before the job ends")
          .within(1, 1e6)
          .bookkeeping()
          .between_ranks(),
      key("comm.share-gpu", &C::comm, &Section::share_gpu,
          "several ranks may use one GPU: for tests, and for the parts of a MIG device")
          .needs("backend", may_use_gpus, "no rank uses a GPU")
          .bookkeeping()
          .other_name("share-gpu"),
      key("comm.allow-different-builds", &C::comm, &Section::allow_different_builds,
          "ranks may run different builds of this program; the bits may then differ")
          .bookkeeping()
          .other_name("allow-different-builds"),
  };
}

}  // namespace lockstep::config
