#include "config/key.hpp"
#include "config/keys/sections.hpp"

namespace lockstep::config {

std::vector<ConfigKey> model_keys() {
  using Section = C::Model;
  return {
      key("model-options.shortcut", &C::model_options, &Section::shortcut,
          "how a block's input is added to its output when the shape changes"),
      key("model-options.zero-init-residual", &C::model_options, &Section::zero_init_residual,
          "the last batch norm of each branch starts with scale 0"),
  };
}

}  // namespace lockstep::config
