#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "lockstep/base/error.hpp"
#include "lockstep/base/owned.hpp"

namespace lockstep {

/// A request that has come completely.
struct HttpRequest {
  std::string method, path;                    ///< "GET", "/metrics"; without the query
  std::map<std::string, std::string> headers;  ///< names in lower case
  std::string body;
};

struct HttpResponse {
  unsigned status = 200;
  std::string type = "text/plain; charset=utf-8";  ///< Content-Type
  std::string body;
  std::map<std::string, std::string> headers = {};
};

/// What a client is told: a status of HTTP and one sentence.
class RequestError : public InputError {
 public:
  RequestError(unsigned status, const std::string& what) : InputError(what), status_(status) {}
  unsigned status() const { return status_; }

 private:
  unsigned status_;
};

/// What a server shows and proves to its clients, for HTTPS: both in the form PEM.
struct HttpTls {
  std::string certificate;  ///< and after it those that signed it, if any
  std::string key;          ///< the private key
  std::string files;        ///< where they are from, for messages
};

/// The bytes that requests may hold together, in all servers of a process.
/// **Thread safety:** all methods; a Share is for one thread at a time.
class ByteBudget {
 public:
  explicit ByteBudget(std::size_t most) : most_(most) {}
  std::size_t used() const { return used_; }

  /// What one request has of it, until it is destroyed.
  class Share {
   public:
    explicit Share(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
    ~Share() { give_back(); }
    Share(const Share&) = delete;
    Share& operator=(const Share&) = delete;
    /// False, and nothing is taken, when that many more are not there.
    bool grow(std::size_t bytes) {
      if (budget_->used_.fetch_add(bytes) + bytes > budget_->most_) {
        budget_->used_ -= bytes;
        return false;
      }
      bytes_ += bytes;
      return true;
    }
    void give_back() { budget_->used_ -= std::exchange(bytes_, 0); }

   private:
    const std::shared_ptr<ByteBudget> budget_;
    std::size_t bytes_ = 0;
  };

 private:
  const std::size_t most_;
  std::atomic<std::size_t> used_{0};
};

constexpr const char* no_bytes_left = "too many bytes wait at once";  ///< with 503

/// Where a server listens, and what a client may cost it.
struct HttpSpec {
  std::string host = "127.0.0.1";     ///< an address in numbers, IPv4 or IPv6
  std::uint16_t port = 0;             ///< 0: any free one
  std::string socket = {};            ///< path of a Unix socket, in place of host and port
  std::optional<HttpTls> tls = {};    ///< HTTPS only; without: HTTP only
  std::size_t most_connections = 64;  ///< further ones wait until one ends
  std::size_t most_body_bytes = 0;    ///< of a request; more is answered by 413
  /// Of all bodies and responses; more: 503.
  std::shared_ptr<ByteBudget> budget = std::make_shared<ByteBudget>(std::size_t{1} << 28);
  unsigned silence_s = 10;  ///< a connection without any byte, or whose header takes that long
                            ///< to come, is closed after it
  std::size_t body_bytes_per_s = 10'000;  ///< and one whose body, or reading, is slower
  double body_s = 600;                    ///< or has not come completely by then
};

/// Answers HTTP/1.1 requests on its own thread until it ends. Every connection has a deadline
/// and a limited memory, whatever comes over it.
class HttpServer {
 public:
  using Answer = std::function<HttpResponse(const HttpRequest&)>;
  virtual ~HttpServer() = default;
  virtual std::uint16_t port() const = 0;  ///< that it listens on; 0 for a Unix socket
  /// Requests that have begun to come, and whose response has not left completely.
  virtual std::size_t open_requests() const = 0;
  /// Ends the visits whose clients have closed their connections meanwhile. Called now and then, on
  /// any thread: while a response is waited for, the server does not look at the connection.
  virtual void end_gone() {}
};

/// One request in a service, from its header until its response has left completely, or its
/// connection has ended. Called and destroyed on the server's thread.
class HttpVisit {
 public:
  /// Takes the response, from any thread; only its first call counts. It may be called when the
  /// visit or the server has ended.
  using Respond = std::function<void(HttpResponse)>;
  virtual ~HttpVisit() = default;
  /// Gets the whole request, once, and must not wait. The connection waits for the response,
  /// without a deadline.
  virtual void answer(HttpRequest request, Respond respond) = 0;
};

/// What answers requests, perhaps later and on other threads.
class HttpService {
 public:
  using Begun = std::variant<std::unique_ptr<HttpVisit>, HttpResponse>;
  virtual ~HttpService() = default;
  /// Sees a request without its body, before that comes: a response refuses it. Called on the
  /// server's thread, and must not wait.
  virtual Begun begin(const HttpRequest& request) = 0;
  /// The form of an error that the server itself finds: a body that is too long, a service that
  /// throws. `what`: one sentence.
  virtual HttpResponse error(unsigned status, const std::string& what) {
    return {.status = status, .body = what + "\n"};
  }
};

/// `answer` is called on the server's thread; what it throws becomes the status 500 and a warning.
/// Throws InputError naming the address when nothing can listen there.
std::unique_ptr<HttpServer> make_http_server(const HttpSpec& spec, HttpServer::Answer answer);
/// `service` must outlive the server. A request without a response when the server ends gets 503. A
/// Unix socket is for its owner alone, and is removed when the server ends.
std::unique_ptr<HttpServer> make_http_server(const HttpSpec& spec, HttpService& service);

/// A TCP socket that listens at an address in numbers, IPv4 or IPv6, and waits for nothing; port 0:
/// any free one. Throws InputError naming the address, with the system's reason.
Descriptor listen_at(const std::string& host, std::uint16_t port);
/// The port of a TCP socket of this side.
std::uint16_t port_of(const Descriptor& socket);

/// For a server's thread: what comes for it no longer interrupts a thread that computes: it waits
/// for a free processor, or a short while. Else each response that is ready interrupts the thread
/// that makes the next one ready. Where the system refuses it, only speed is lost.
void let_others_finish();

/// Throws InputError naming the files unless a server could use the certificate and the key.
void require_usable(const HttpTls& tls);

/// The host and port of a key's value: "9400", "0.0.0.0:9400", "[::1]:9400"; without a host,
/// 127.0.0.1. Throws InputError naming the key.
HttpSpec parse_listen(const std::string& text, const std::string& key);

}  // namespace lockstep
