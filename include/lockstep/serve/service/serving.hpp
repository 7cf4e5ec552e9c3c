#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/backend/backend.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/data/loading/image_preparer.hpp"
#include "lockstep/infer/combined.hpp"
#include "lockstep/model/model.hpp"

namespace lockstep::serve {

/// A network as its file holds it, with what computing needs.
struct MemberFile {
  std::string name;  ///< in statistics
  model::Model model;
  backend::ProgramSpec program;  ///< of the largest batch
};

/// A model as its files hold it: one network, or several that answer as one.
struct ModelFile {
  std::vector<MemberFile> members;
  infer::Arrangement arrangement;  ///< of the members
  data::DataSetInfo input;         ///< of all members, with the names of the model's classes
};

/// Where a model comes from. Both functions throw InputError.
struct ModelSource {
  using Files = std::vector<std::filesystem::path>;
  std::string name;                             ///< in the paths of requests
  std::string text;                             ///< how its members make it, for people
  std::function<Files()> locate;                ///< its members' files, which may be others later
  std::function<ModelFile(const Files&)> read;  ///< verifies; on any thread
};

/// What clients may ask and wait for.
struct ServeSpec {
  HttpSpec http;
  /// Where it also answers over gRPC; 0: any free port.
  std::optional<std::uint16_t> grpc_port;
  std::string token;                     ///< that requests must bring, unless it is empty
  std::size_t waiting_rows = 1024;       ///< of a model, at most
  std::size_t most_pixels = 64'000'000;  ///< of an image that is decoded
  double deadline_s = 30;                ///< of a request, unless it asks for less
  double grace_s = 3;                    ///< between "not ready" and the first refusal, at the end
  double drain_s = 60;                   ///< then, for what has come
  data::ImageForm form;                  ///< how the networks' training sets were packed
  std::size_t readers = 1;               ///< threads that read requests and prepare images
  std::function<void()> bind_reader;     ///< called first on each of them
};

/// How the caller steers the service.
struct ServeControl {
  std::function<bool()> stop;    ///< asked often: whether to end
  std::function<bool()> reload;  ///< asked often: whether to read all models again; true once
  /// Gets the servers once they listen; null: gRPC was not asked for.
  std::function<void(const HttpServer& http, const HttpServer* grpc)> listening;
  /// Ends the process: all that can be answered is, but a thread still decodes or reads a file.
  std::function<void()> leave;
};

/// Answers requests on models until `control.stop`, and computes on the calling thread. Then it is
/// not ready, for a while still takes requests, and at last answers those that it has; those that
/// are not computed by then get 503. It ends within two more seconds. Returns whether all were
/// answered before. A model whose file changes is loaded again next to the old one, which answers
/// until the new one is verified and has run; one that cannot be used changes nothing. Throws
/// InputError naming a model that cannot be loaded at the start, or where it cannot listen.
bool serve_models(const ServeSpec& spec, const std::vector<ModelSource>& sources,
                  backend::Backend& backend, const ServeControl& control);

}  // namespace lockstep::serve
