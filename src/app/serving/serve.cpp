#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "app/cli/command_line.hpp"
#include "app/cli/pack_options.hpp"
#include "app/cli/run_options.hpp"
#include "app/commands.hpp"
#include "app/start/compute.hpp"
#include "app/trained/members.hpp"
#include "lockstep/base/error.hpp"
#include "lockstep/base/files/files.hpp"
#include "lockstep/base/files/io.hpp"
#include "lockstep/base/grpc.hpp"
#include "lockstep/base/http.hpp"
#include "lockstep/base/log.hpp"
#include "lockstep/infer/trained_model.hpp"
#include "lockstep/serve/service/serving.hpp"
#include "lockstep/train/ending/stop_signal.hpp"
#include "lockstep/train/files/run_directory.hpp"
#include "lockstep/train/specs.hpp"

namespace lockstep::app {
namespace {

enum class For { owner, all };

/// A small file's text.
std::string read_secret(const std::filesystem::path& path, For whom) {
  constexpr std::size_t longest = 1 << 20;
  const auto file = open_regular(path);
  require(bool{file}, fmt::format("{}: {}", path.string(), std::strerror(errno)));
  struct stat facts = {};
  check(::fstat(file.get(), &facts) == 0, "fstat of an open file");
  if (whom == For::owner) {
    require(facts.st_uid == ::geteuid(), fmt::format("{}: belongs to another user", path.string()));
    require((facts.st_mode & (S_IRWXG | S_IRWXO)) == 0,
            fmt::format("{0}: is not for its owner alone: chmod 600 {0}", path.string()));
  }
  std::string text(longest + 1, '\0');
  text.resize(read_all(file.get(), text.data(), text.size()));
  require(text.size() > longest || errno == 0,
          fmt::format("{}: {}", path.string(), std::strerror(errno)));
  require(text.size() <= longest,
          fmt::format("{}: is larger than {} bytes", path.string(), std::size_t{longest}));
  return text;
}

std::string read_pem(const std::filesystem::path& path, const char* what, For whom) {
  std::string text = read_secret(path, whom);
  const std::size_t begins = text.find("-----BEGIN ");
  require(
      begins != text.npos && text.find(what, begins) != text.npos && text.find('\0') == text.npos,
      fmt::format("{}: holds no {} in the form PEM", path.string(), what));
  return text;
}

/// The secret in a file's first line. Throws InputError naming the file when others than its owner
/// may read it or may write to it, when it is not this user's, or holds fewer than 16 letters.
std::string read_token(const std::filesystem::path& path) {
  constexpr std::size_t shortest = 16;
  std::string token = read_secret(path, For::owner);
  token.resize(std::min(token.find_first_of("\r\n"), token.size()));
  const bool printable =
      std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; });
  require(token.size() >= shortest && printable,
          fmt::format("{}: its first line is not a token of at least {} letters without blanks",
                      path.string(), shortest));
  return token;
}

/// A certificate, with those that signed it, and its private key, in two PEM files. Throws
/// InputError naming the file when others than its owner may use the key's, when it is not this
/// user's, or one holds no PEM; naming both when they cannot be used together.
HttpTls read_tls(const std::filesystem::path& certificate, const std::filesystem::path& key) {
  HttpTls tls{.certificate = read_pem(certificate, "CERTIFICATE", For::all),
              .key = read_pem(key, "PRIVATE KEY", For::owner),
              .files = fmt::format("{} and {}", certificate.string(), key.string())};
  require_usable(tls);
  return tls;
}

std::atomic<bool> g_reload{false};
static_assert(std::atomic<bool>::is_always_lock_free, "a signal handler may only touch such flags");

struct ServeOptions {
  std::vector<std::string> models;
  serve::ServeSpec spec;
  FormOptions form;
  std::string token_file, tls_cert, tls_key, backend = "auto", precision;
  std::size_t batch = 16, threads = 0, body_mb = 64;
  bool ema = false, share_gpu = false;

  void add_to(Arguments app) {
    spec.http.port = 8000;
    spec.http.most_connections = 512;
    app.add("models", models,
            "MODEL or NAME=MODEL: a checkpoint, a .safetensors, .pth, .npz or .onnx file, or the "
            "folder of a run: its best.h5, or its newest; the name is the one in requests' paths. "
            "After NAME= " +
                std::string(infer::several_help))
        .required();
    add_count(app, "--port", spec.http.port, {0, 65535, true},
              "TCP port to listen on; auto: any free one");
    add_count(app, "--grpc-port", spec.grpc_port, {0, 65535, true},
              "TCP port for gRPC, too (built with make GRPC=1); auto: any free one");
    app.add("--host", spec.http.host,
            "address to listen on, in numbers, such as 0.0.0.0 for all of IPv4")
        .shows_default();
    app.add("--socket", spec.http.socket, "listen at the path of a Unix socket instead")
        .called("FILE");
    app.add("--token-file", token_file,
            "file with a secret, for its owner alone: requests need 'Authorization: Bearer ...'")
        .called("FILE");
    app.add("--tls-cert", tls_cert,
            "PEM file of a certificate, and of those that signed it: HTTPS in place of HTTP")
        .called("FILE");
    app.add("--tls-key", tls_key, "PEM file of its private key, for its owner alone")
        .called("FILE");
    add_count(app, "--batch", batch, {1, 4096}, "rows that are computed at once, at most");
    add_count(app, "--queue", spec.waiting_rows, {1, 1 << 20},
              "images that may wait for a model; then clients get 503");
    add_limits(app);
    app.add_flag("--ema", ema, "use the average of the weights that training kept (optim.ema)");
    add_precision(app, precision);
    add_form_options(app, form, spec.form);
    add_count(app, "--threads", threads, threads_or_all,
              "compute threads; auto: one for each core of its share");
    add_backend(app, backend);
    app.add_flag("--comm.share-gpu,--share-gpu", share_gpu, "other processes may use the GPU, too");
  }

  void add_limits(Arguments app) {
    add_count(app, "--connections", spec.http.most_connections, {1, 65535},
              "open connections at most; further ones wait");
    add_count(app, "--body-mb", body_mb, {1, 4000},
              "size of a request at most, in MB; all together have 1 GiB, or four times this");
    app.add("--body-s", spec.http.body_s,
            "a connection is closed when a request's body takes longer, however fast it comes")
        .within(1.0, 86400.0)
        .shows_default();
    add_count(app, "--most-pixels", spec.most_pixels, {1, std::uint64_t{1} << 28},
              "pixels of an image in a JPEG or PNG file at most");
    app.add("--deadline-s", spec.deadline_s, "a request that is not computed by then gets 504")
        .within(0.001, 3600.0)
        .shows_default();
    app.add("--grace-s", spec.grace_s,
            "after SIGTERM it is not ready, but still takes requests for this long")
        .within(0.0, 3600.0)
        .shows_default();
    app.add("--drain-s", spec.drain_s, "then it answers those that it has, for at most this long")
        .within(0.0, 3600.0)
        .shows_default();
  }
};

void require_both(const ServeOptions& options) {
  require(options.tls_cert.empty() == options.tls_key.empty(),
          "give --tls-cert and --tls-key together: HTTPS needs both");
}

bool is_model_name(const std::string& name) {
  const auto fits = [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  };
  return !name.empty() && name.size() <= 100 && name != "stats" &&
         std::all_of(name.begin(), name.end(), fits);
}

serve::ModelFile read_model(const infer::ModelWords& words, const serve::ModelSource::Files& files,
                            const ServeOptions& options) {
  infer::MemberModels members =
      infer::read_members(words, std::vector<std::string>(files.begin(), files.end()),
                          {.average = options.ema, .precision = options.precision});
  infer::require_normalised(members);
  serve::ModelFile file{.members = {},
                        .arrangement = members.arrangement,
                        .input = infer::input_of(members, nullptr)};
  for (infer::MemberModel& member : members.all) {
    const backend::ProgramSpec program =
        infer::make_program_spec(member.config, member.model.about.input, options.batch);
    file.members.push_back({member.name, std::move(member.model), program});
  }
  return file;
}

/// The name of a model that was given none.
std::string usual_name(const infer::ModelWords& words) {
  require(!words.is_several(),
          fmt::format("{0}: a model of several files needs a name: NAME={0}", words.text()));
  const std::filesystem::path path = words.files.front();
  if (!std::filesystem::is_directory(path)) return path.stem().string();
  return (path / ".").lexically_normal().parent_path().filename().string();
}

struct NamedModel {
  std::string name;
  infer::ModelWords words;
};

/// The model that the next words are; takes them.
NamedModel take_model(std::vector<std::string>& rest) {
  const std::string text = rest.front();
  rest.erase(rest.begin());
  const std::size_t equals = text.find('=');
  const std::string given = equals == text.npos ? "" : text.substr(0, equals);
  const bool named = is_model_name(given);
  const infer::ModelWords words = infer::take_model(named ? text.substr(equals + 1) : text, rest);
  infer::require_fitted(words);
  const std::string name = named ? given : usual_name(words);
  require(is_model_name(name),
          fmt::format("{}: cannot be the name of a model: give NAME={}", name, words.text()));
  return {name, words};
}

std::vector<NamedModel> models_of(const ServeOptions& options) {
  std::vector<NamedModel> models;
  for (std::vector<std::string> rest = options.models; !rest.empty();)
    models.push_back(take_model(rest));
  return models;
}

serve::ModelSource source_of(const NamedModel& model, const ServeOptions& options) {
  const infer::ModelWords& words = model.words;
  return {.name = model.name,
          .text = words.text(),
          .locate =
              [words] {
                const std::vector<std::string> files = member_files(words);
                return serve::ModelSource::Files(files.begin(), files.end());
              },
          .read =
              [words, &options](const serve::ModelSource::Files& files) {
                return read_model(words, files, options);
              }};
}

/// In a Slurm job: how to reach this node's port from outside.
void tell_tunnel(const serve::ServeSpec& spec, std::uint16_t port, const std::string& node) {
  const cluster::EnvLookup env = cluster::process_environment();
  const auto login = env("SLURM_SUBMIT_HOST");
  if (!env("SLURM_JOB_ID") || !login || port == 0) return;
  const std::string user = env("USER").value_or("USER");
  const bool local = spec.http.host.starts_with("127.");
  log::info(fmt::format("from your own machine: ssh -N -L {0}:{1}:{0} {2}", port,
                        local ? "127.0.0.1" : node,
                        local ? fmt::format("-J {0}@{1} {0}@{2}", user, *login, node)
                              : fmt::format("{}@{}", user, *login)));
}

void tell_listening(const HttpServer& server, const HttpServer* grpc, const serve::ServeSpec& spec,
                    const std::string& node) {
  const HttpSpec& http = spec.http;
  const bool v6 = http.host.find(':') != http.host.npos;
  const std::string host = v6 ? "[" + http.host + "]" : http.host;
  if (grpc != nullptr)
    log::info(fmt::format("listening for gRPC{} at {}:{}", http.tls ? " over TLS" : "", host,
                          grpc->port()));
  log::info(
      fmt::format("listening at {}",
                  http.socket.empty()
                      ? fmt::format("{}://{}:{}/", http.tls ? "https" : "http", host, server.port())
                      : http.socket));
  if (!http.socket.empty() && grpc == nullptr) return;
  const bool local = http.host.starts_with("127.") || http.host == "::1";
  if (!http.socket.empty() && spec.token.empty())
    log::warn(
        "--socket is for its owner alone, but at gRPC's port all users of this machine may "
        "ask: --token-file asks for a token");
  if (!local && spec.token.empty())
    log::warn("everyone who reaches this address may ask: --token-file asks for a token");
  if (!local && !spec.token.empty() && !http.tls)
    log::warn("the token passes the network in plain text: --tls-cert and --tls-key protect it");
  tell_tunnel(spec, server.port(), node);
}

/// Connections must leave descriptors for models, and for what the libraries open.
void fit_connections(serve::ServeSpec& spec) {
  constexpr std::size_t most_kept = 128;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const auto all = static_cast<std::size_t>(limit.rlim_cur);
  const std::size_t of_both = spec.grpc_port ? 3 : 1;  // gRPC's take two each
  const std::size_t fit = std::max<std::size_t>((all - std::min(most_kept, all / 2)) / of_both, 1);
  if (spec.http.most_connections <= fit) return;
  log::warn(fmt::format(
      "--connections {} do not fit: this process may open {} files (ulimit -n). "
      "It takes {} connections at a time{}",
      spec.http.most_connections, all, fit, spec.grpc_port ? ", and as many over gRPC" : ""));
  spec.http.most_connections = fit;
}

void check_options(const ServeOptions& options, const Supposed& supposed) {
  for (const NamedModel& model : models_of(options)) {
    if (!std::ranges::all_of(model.words.files, supposed.shows)) continue;
    const serve::ModelSource source = source_of(model, options);
    const serve::ModelSource::Files located = source.locate();
    for (const auto& file : located) stamp_of(file);
    source.read(located);
  }
  if (!supposed.whole) return;
  if (options.spec.grpc_port) require_grpc();
  data::ImageForm form = options.spec.form;
  settle_form(options.form, form);
  require_both(options);
  if (supposed.shows(options.token_file)) read_token(options.token_file);
  if (supposed.shows(options.tls_cert) && supposed.shows(options.tls_key))
    read_tls(options.tls_cert, options.tls_key);
}

int serve_until_stopped(Launch& launch, const ServeOptions& asked) {
  if (asked.spec.grpc_port) require_grpc();
  launch.stay_independent();
  train::catch_stop_signals(false);
  std::signal(SIGHUP, [](int) { g_reload = true; });
  ServeOptions options = asked;
  settle_form(options.form, options.spec.form);
  HttpSpec& http = options.spec.http;
  http.most_body_bytes = options.body_mb * 1'000'000;
  http.budget = std::make_shared<ByteBudget>(
      std::max<std::size_t>(std::size_t{1} << 30, 4 * http.most_body_bytes));
  fit_connections(options.spec);
  if (!options.token_file.empty()) options.spec.token = read_token(options.token_file);
  require_both(options);
  if (!options.tls_cert.empty()) http.tls = read_tls(options.tls_cert, options.tls_key);
  std::vector<serve::ModelSource> sources;
  for (const NamedModel& model : models_of(options)) sources.push_back(source_of(model, options));
  const std::string backend = decide_backend(launch, options.backend);
  const Compute compute = prepare_compute(
      launch, {.backend = backend, .threads = options.threads, .share_gpu = options.share_gpu});
  options.spec.readers = std::clamp<std::size_t>(compute.spare_cores, 1, 8);
  options.spec.bind_reader = compute.bind_worker;
  const bool all_answered =
      serve::serve_models(options.spec, sources, *compute.backend,
                          {.stop = [] { return train::stop_requested(); },
                           .reload = [] { return g_reload.exchange(false); },
                           .listening =
                               [&](const HttpServer& served, const HttpServer* grpc) {
                                 tell_listening(served, grpc, options.spec, launch.rank.host);
                               },
                           .leave =
                               [] {
                                 log::info("stopped");
                                 ::_exit(status_done);
                               }});
  log::info(all_answered ? "stopped: all requests were answered" : "stopped");
  return status_done;
}

}  // namespace

Command add_serve(Arguments root) {
  auto options = std::make_shared<ServeOptions>();
  Arguments app = root.add_command(
      "serve",
      "Answer requests over HTTP with models' predictions: the Open Inference Protocol (KServe v2) "
      "with Triton's extensions, Prometheus' /metrics, and a page at /; with --grpc-port, also "
      "over gRPC. SIGTERM ends it when all is answered; SIGHUP or a changed file loads a model "
      "again");
  options->add_to(app);
  return {app, [options](Launch& launch) { return serve_until_stopped(launch, *options); },
          [options](const Supposed& supposed) { check_options(*options, supposed); }};
}

}  // namespace lockstep::app
