#include "serve/protocol/route.hpp"

#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/backend/answers.hpp"
#include "lockstep/base/build_id.hpp"
#include "lockstep/base/text/json_text.hpp"
#include "serve/protocol/infer_request.hpp"

namespace lockstep::serve {
namespace {

using Ordered = nlohmann::ordered_json;

constexpr const char* all_models = R"({
  "openapi": "3.1.0",
  "info": {
    "title": "lockstep serve",
    "description":
      "Predictions of image classifiers by the Open Inference Protocol, with Triton's extensions."
  },
  "paths": {
    "/": {"get": {"summary": "a page on which an image can be dropped",
      "security": [], "responses": {"200": {"description": "the page",
        "content": {"text/html": {"schema": {"type": "string"}}}}}}},
    "/metrics": {"get": {"summary": "all figures, for Prometheus", "responses": {
      "200": {"description": "Prometheus' text",
        "content": {"text/plain": {"schema": {"type": "string"}}}}}}},
    "/openapi.json": {"get": {"summary": "this description", "responses": {
      "200": {"$ref": "#/components/responses/object"}}}},
    "/v2": {"get": {"summary": "the server's version and extensions", "responses": {
      "200": {"$ref": "#/components/responses/object"}}}},
    "/v2/health/live": {"get": {"summary": "whether the server lives", "security": [],
      "responses": {"200": {"$ref": "#/components/responses/object"}}}},
    "/v2/health/ready": {"get": {"summary": "whether it takes requests", "security": [],
      "responses": {"200": {"$ref": "#/components/responses/object"},
        "503": {"$ref": "#/components/responses/object"}}}},
    "/v2/models/stats": {"get": {"summary": "what all models have done", "responses": {
      "200": {"$ref": "#/components/responses/object"}}}},
    "/v2/repository/index": {"post": {"summary": "all models; its body is not read",
      "responses": {"200": {"description": "the models", "content": {"application/json": {
        "schema": {"type": "array", "items": {"type": "object",
          "required": ["name", "version", "state", "reason"]}}}}}}}}
  },
  "components": {
    "responses": {
      "object": {"description": "what is asked for",
        "content": {"application/json": {"schema": {"type": "object"}}}},
      "error": {"description": "one sentence that says what is wrong",
        "content": {"application/json": {"schema": {"type": "object", "required": ["error"],
          "properties": {"error": {"type": "string"}}}}}},
      "inference": {"description": "the outputs", "content": {
        "application/json": {"schema": {"type": "object",
          "required": ["model_name", "model_version", "outputs"],
          "properties": {"model_name": {"type": "string"}, "model_version": {"type": "string"},
            "id": {"type": "string"}, "outputs": {"type": "array", "minItems": 1,
              "items": {"type": "object", "required": ["name", "datatype", "shape", "data"],
                "properties": {"name": {"enum": ["logits", "probabilities", "values"]},
                  "datatype": {"enum": ["FP32", "BYTES"]},
                  "shape": {"type": "array", "items": {"type": "integer"}, "minItems": 2,
                    "maxItems": 2},
                  "data": {"type": "array", "items": {"type": ["number", "string", "null"]}}}}}}}},
        "application/octet-stream": {"schema": {"type": "string", "format": "binary"}},
        "text/plain": {"schema": {"type": "string",
          "description":
            "of one image, where Accept begins so: its likeliest classes or labels, or values"}}}}
    },
    "schemas": {
      "output": {"type": "object", "required": ["name"], "properties": {
        "name": {"type": "string"},
        "parameters": {"type": ["object", "null"], "properties": {
          "binary_data": {"type": ["boolean", "null"],
            "description": "its values follow the JSON of the answer"},
          "classification": {"type": ["integer", "null"], "minimum": 0, "maximum": 1000000,
            "description": "the likeliest classes in place of all values"},
          "shared_memory_region": false}}}},
      "parameters": {"type": ["object", "null"], "properties": {
        "binary_data_output": {"type": ["boolean", "null"],
          "description": "outputs are binary unless they say otherwise"}}}
    }
  }
})";

// @ marks a word that follows from the model.
constexpr const char* model_paths = R"({
  "": {"get": {"summary": "what the model takes and gives", "responses": {
    "200": {"$ref": "#/components/responses/object"}}}},
  "/ready": {"get": {"summary": "whether the model answers", "responses": {
    "200": {"$ref": "#/components/responses/object"},
    "503": {"$ref": "#/components/responses/object"}}}},
  "/config": {"get": {"summary": "the model's configuration, in Triton's form", "responses": {
    "200": {"$ref": "#/components/responses/object"}}}},
  "/stats": {"get": {"summary": "what the model has done", "responses": {
    "200": {"$ref": "#/components/responses/object"}}}},
  "/infer": {"post": {
    "summary": "what the model says of images of @height x @width, @outputs",
    "description":
      "The body as described has one image. It may have any number, with as many rows of data.
 Tensors may also follow the JSON as binary data, whose length each has as its parameter
 binary_data_size; the header Inference-Header-Content-Length then says how many bytes are JSON.
 @files With 0 in that header, the whole body is @one_body. The parameter timeout is a number of
 microseconds, after which the answer is 504.",
    "requestBody": {"required": true, "content": {"application/json": {"schema": {
      "type": "object", "required": ["inputs"], "properties": {
        "id": {"type": ["string", "null"], "maxLength": 200},
        "parameters": {"$ref": "#/components/schemas/parameters"},
        "inputs": {"type": "array", "minItems": 1, "maxItems": 1, "items": {"type": "object",
          "required": ["name", "datatype", "shape", "data"], "properties": {
            "name": {"const": "images"}, "datatype": {"const": "@datatype"},
            "shape": {"type": "array", "minItems": 4, "maxItems": 4, "prefixItems": [
              {"const": 1}, {"const": @height}, {"const": @width}, {"const": @channels}]},
            "data": {"type": "array", "minItems": @values, "maxItems": @values,
              "items": @number},
            "parameters": {"type": ["object", "null"], "properties": {
              "binary_data_size": {"type": "null"}, "shared_memory_region": false}}}}},
        "outputs": {"type": ["array", "null"], "maxItems": 16,
          "items": {"allOf": [{"$ref": "#/components/schemas/output"}, {"properties": {
            "name": {"enum": ["logits", "@answers"]},
            "parameters": {"properties": {"classification": {"maximum": @likeliest}}}}}]}}}}}}},
    "responses": {
      "200": {"$ref": "#/components/responses/inference"},
      "400": {"$ref": "#/components/responses/error"},
      "413": {"$ref": "#/components/responses/error"},
      "415": {"$ref": "#/components/responses/error"},
      "503": {"$ref": "#/components/responses/error"},
      "504": {"$ref": "#/components/responses/error"}}}}
})";

/// Its marks replaced, and its lines joined: JSON has none inside of a string.
Ordered filled(std::string text, const std::map<std::string, std::string>& words) {
  for (const auto& [mark, word] : words)
    for (std::size_t at = 0; (at = text.find(mark, at)) != text.npos; at += word.size())
      text.replace(at, mark.size(), word);
  std::erase(text, '\n');
  return Ordered::parse(text);
}

const char* schema_of(data::Element element) {
  switch (element) {
    case data::Element::u8:
      return R"({"type": "integer", "minimum": 0, "maximum": 255})";
    case data::Element::u16:
      return R"({"type": "integer", "minimum": 0, "maximum": 65535})";
    case data::Element::i16:
      return R"({"type": "integer", "minimum": -32768, "maximum": 32767})";
    case data::Element::f16:
    case data::Element::f32:
      break;
  }
  return R"({"type": "number", "minimum": -3.4e38, "maximum": 3.4e38})";
}

void add_model(const DescribedModel& model, Ordered& paths) {
  Ordered own = filled(
      model_paths,
      {{"@height", std::to_string(model.height)},
       {"@width", std::to_string(model.width)},
       {"@channels", std::to_string(model.channels)},
       {"@outputs", std::to_string(model.classes) + " " + choice_name(model.task)},
       {"@values", std::to_string(model.height * model.width * model.channels)},
       {"@datatype", datatype_of(model.element)},
       {"@number", schema_of(model.element)},
       {"@answers", backend::name_of_answers(model.task)},
       {"@likeliest", model.task == data::Task::values ? "0" : "1000000"},
       {"@files", model.files ? "Only so the input image_bytes (BYTES) takes JPEG and PNG files."
                              : "It takes no image files."},
       {"@one_body",
        model.files ? "one such file, or the pixels of one image" : "the numbers of one image"}});
  if (model.element == data::Element::f16)
    own["/infer"]["post"]["requestBody"]["content"] = {
        {"application/octet-stream", {{"schema", {{"type", "string"}, {"format", "binary"}}}}}};
  const std::string newest = "/v2/models/" + model.name;
  for (const std::string& at : {newest, newest + "/versions/" + model.version})
    for (const auto& [rest, path] : own.items()) paths[at + rest] = path;
}

}  // namespace

std::string openapi_document(const std::vector<DescribedModel>& models, bool token) {
  Ordered all = filled(all_models, {});
  all["info"]["version"] = build_id();
  for (const DescribedModel& model : models) add_model(model, all["paths"]);
  if (token) {
    all["components"]["securitySchemes"] = {{"token", {{"type", "http"}, {"scheme", "bearer"}}}};
    all["security"] = Ordered::array({{{"token", Ordered::array()}}});
    for (auto& [at, path] : all["paths"].items())
      for (auto& [method, operation] : path.items())
        if (!operation.contains("security"))
          operation["responses"]["401"] = {{"$ref", "#/components/responses/error"}};
  }
  return json_text(all) + "\n";
}

}  // namespace lockstep::serve
