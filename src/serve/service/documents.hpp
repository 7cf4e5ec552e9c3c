#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "serve/service/repository.hpp"

// What the service says about itself, each a document of JSON in the form of the protocol or of
// Triton's extension.
namespace lockstep::serve {

std::string error_document(const std::string& sentence);  ///< one line
std::string live_document(bool ready);
std::string server_document();
std::string model_document(const Version& version);
std::string model_ready_document(const Version& version, bool ready);
std::string config_document(const Version& version, const Batcher& batcher);
std::string index_document(const Repository& repository);
/// Of these models: Triton's statistics extension.
std::string statistics_document(const std::vector<std::shared_ptr<const Version>>& versions,
                                const Repository& repository);

/// All figures as Prometheus' text.
std::string metrics_text(const Repository& repository, const Batcher& batcher, bool ready);

/// A page on which an image can be dropped: HTML, complete without other files.
std::string_view page_html();

}  // namespace lockstep::serve
