#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {
namespace {

bool trains_norms(const C& c) { return c.freeze != nn::Freeze::backbone; }

}  // namespace

std::vector<ConfigKey> model_keys() {
  using Section = C::Model;
  return {
      key("model-options.shortcut", &C::model_options, &Section::shortcut,
          "how a block's input is added to its output when the shape changes"),
      key("model-options.zero-init-residual", &C::model_options, &Section::zero_init_residual,
          "the last batch norm of each branch starts with scale 0"),
      key("model-options.norm-ranks", &C::model_options, &Section::norm_ranks,
          "on CPUs: groups of this many consecutive ranks normalise with the statistics of all of "
          "their rows (synchronised batch norm); 1: each rank with its own")
          .within(1, 1 << 20)
          .needs("freeze", trains_norms, "no batch norm trains")
          .between_ranks(),
  };
}

}  // namespace lockstep::config
