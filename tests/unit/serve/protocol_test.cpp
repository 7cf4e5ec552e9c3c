// Paths, encodings of bodies and the form of responses.
#include <zlib.h>
#include <catch2/catch.hpp>

#include <cstring>
#include <limits>
#include <string>

#include <nlohmann/json.hpp>

#include "serve/protocol/infer_request.hpp"
#include "serve/protocol/route.hpp"

using namespace lockstep;
using namespace lockstep::serve;

namespace {

unsigned status_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const RequestError& error) {
    return error.status();
  }
  return 200;
}

unsigned route_status(const char* method, const std::string& path) {
  std::string allowed;
  return status_of([&] { find_route(method, path, allowed); });
}

/// `window`: 15 for zlib's header, 31 for gzip's.
std::string packed(const std::string& text, int window) {
  z_stream stream = {};
  REQUIRE(deflateInit2(&stream, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(text.size() + 100, '\0');
  std::string in = text;
  stream.next_in = reinterpret_cast<Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

}  // namespace

TEST_CASE("each path of the protocol is found with its model and version", "[serve]") {
  std::string allowed;
  const Route infer = find_route("POST", "/v2/models/a.b-c/versions/12/infer", allowed);
  CHECK((infer.resource == Resource::infer && infer.model == "a.b-c" && infer.version == "12"));
  const Route model = find_route("GET", "/v2/models/m", allowed);
  CHECK((model.resource == Resource::model && model.model == "m" && model.version.empty()));
  CHECK(find_route("GET", "/v2/models/stats", allowed).resource == Resource::statistics);
  CHECK(find_route("GET", "/v2/models/m/versions/1/config", allowed).resource ==
        Resource::model_config);
  CHECK(find_route("HEAD", "/v2/health/ready", allowed).resource == Resource::ready);
}

TEST_CASE("a path that is not there is 404, and a method that a path does not have 405",
          "[serve]") {
  for (const char* path :
       {"", "v2", "/v1", "/v2/models", "/v2/models/", "/v2/models//infer", "/v2/models/m/",
        "/openapi", "/v2/models/m/infer/", "/v2/models/m/infer/x", "/v2/models/m/versions",
        "/v2/health", "/v2/models/m/versions/1/versions/2/infer", "//", "/v2/models/m/load"})
    CHECK(route_status("GET", path) == 404);
  CHECK(route_status("GET", "/v2/models/m/infer") == 405);
  CHECK(route_status("POST", "/v2/models/m") == 405);
  CHECK(route_status("DELETE", "/") == 405);
}

TEST_CASE("the description has each path of each model, and asks for a token where one is",
          "[serve]") {
  const auto described = nlohmann::json::parse(openapi_document(
      {{.name = "m", .version = "3", .height = 2, .width = 4, .channels = 3, .classes = 5}}, true));
  const auto& paths = described["paths"];
  for (const auto& [path, operations] : paths.items())
    for (const auto& [method, operation] : operations.items())
      CHECK(route_status(method == "get" ? "GET" : "POST", path) == 200);
  for (const char* path : {"/v2/models/m/infer", "/v2/models/m/versions/3/infer"}) {
    const auto& data = paths[path]["post"]["requestBody"]["content"]["application/json"]["schema"]
                            ["properties"]["inputs"]["items"]["properties"]["data"];
    CHECK((data["minItems"] == 24 && data["maxItems"] == 24));
  }
  CHECK(paths["/v2"]["get"]["responses"].contains("401"));
  CHECK(!paths["/v2/health/live"]["get"]["responses"].contains("401"));
  CHECK(!nlohmann::json::parse(openapi_document({}, false)).contains("security"));
}

TEST_CASE("the description has the element of each model's numbers, and its outputs", "[serve]") {
  const auto described = nlohmann::json::parse(
      openapi_document({{.name = "a",
                         .version = "1",
                         .height = 2,
                         .width = 4,
                         .channels = 12,
                         .classes = 3,
                         .element = data::Element::i16,
                         .task = data::Task::values,
                         .files = false},
                        {.name = "b", .version = "1", .element = data::Element::f16}},
                       false));
  const auto content = [&](const char* path) {
    return described["paths"][path]["post"]["requestBody"]["content"];
  };
  const auto fields = content("/v2/models/a/infer")["application/json"]["schema"]["properties"];
  const auto input = fields["inputs"]["items"]["properties"];
  CHECK(input["datatype"]["const"] == "INT16");
  CHECK((input["data"]["items"]["minimum"] == -32768 && input["data"]["minItems"] == 96));
  const auto output = fields["outputs"]["items"]["allOf"][1]["properties"];
  CHECK(output["name"]["enum"] == nlohmann::json({"logits", "values"}));
  CHECK(output["parameters"]["properties"]["classification"]["maximum"] == 0);
  const std::string words =
      described["paths"]["/v2/models/a/infer"]["post"]["description"].get<std::string>();
  CHECK(words.find("takes no image files") != words.npos);
  CHECK(words.find('@') == words.npos);
  CHECK(content("/v2/models/b/infer").contains("application/octet-stream"));
  CHECK(!content("/v2/models/b/infer").contains("application/json"));
}

TEST_CASE("a compressed body is what was compressed, or an error", "[serve]") {
  const std::string text(100'000, 'a');
  const auto decoded = [](const std::string& body, const char* name, std::size_t most,
                          std::size_t room = 1'000'000) {
    ByteBudget::Share share(std::make_shared<ByteBudget>(room));
    return decode_content(body, name, most, share);
  };
  for (const int window : {15, 31})
    for (const char* name : {"gzip", "deflate"})
      CHECK(decoded(packed(text, window), name, text.size()) == text);
  CHECK(decoded(text, "", 0) == text);
  const auto status = [&](const std::string& body, const char* name, std::size_t most = 1'000'000) {
    return status_of([&] { decoded(body, name, most); });
  };
  const std::string good = packed(text, 31);
  CHECK(status(good, "gzip", text.size() - 1) == 413);
  CHECK(status_of([&] { decoded(good, "gzip", text.size(), text.size() - 1); }) == 503);
  CHECK(decoded(good, "gzip", text.size(), text.size()) == text);
  CHECK(status(good, "br") == 415);
  CHECK(status("", "gzip") == 400);
  CHECK(status("not compressed", "gzip") == 400);
  CHECK(status(good.substr(0, good.size() - 1), "gzip") == 400);
  CHECK(status(good + "x", "gzip") == 400);
  std::string damaged = good;
  damaged[damaged.size() - 5] ^= 1;  // of the checksum
  CHECK(status(damaged, "gzip") == 400);
}

TEST_CASE("a response has its tensors as JSON or after it, each float with its bits", "[serve]") {
  const std::vector<float> values = {0.1f, -1e-42f, 16777217.0f, 3.4028235e38f};
  InferResponse response{
      .model = "m",
      .version = "3",
      .id = "x",
      .outputs = {
          {.name = "json", .shape = {2, 2}, .values = values, .strings = {}},
          {.name = "bits", .shape = {4}, .values = values, .strings = {}, .binary = true},
          {.name = "words", .shape = {2}, .values = {}, .strings = {"ab", ""}, .binary = true}}};
  std::size_t json_length = 0;
  const std::string body = infer_response_body(response, json_length);
  const auto json = nlohmann::json::parse(body.substr(0, json_length));
  CHECK((json["model_name"] == "m" && json["model_version"] == "3" && json["id"] == "x"));
  CHECK(json["outputs"][0]["data"].get<std::vector<float>>() == values);
  CHECK(json["outputs"][1]["parameters"]["binary_data_size"] == 16);
  CHECK((json["outputs"][2]["datatype"] == "BYTES" && !json["outputs"][2].contains("data")));
  REQUIRE(body.size() == json_length + 16 + 10);
  CHECK(std::memcmp(body.data() + json_length, values.data(), 16) == 0);
  CHECK(body.substr(json_length + 16) == std::string("\x02\0\0\0ab\0\0\0\0", 10));
}
