#pragma once

#include <string_view>

namespace lockstep::serve {

/// A page on which an image can be dropped: HTML, complete without other files.
std::string_view page_html();

}  // namespace lockstep::serve
