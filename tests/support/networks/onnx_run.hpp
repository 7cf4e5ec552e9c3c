#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace lockstep::test {

struct OnnxValue {
  std::vector<std::size_t> shape;
  std::vector<double> values;
};

/// The constants of an ONNX file, by name.
std::map<std::string, OnnxValue> onnx_constants(const std::string& file);

/// Runs the bytes of an ONNX file on its only input, node by node and in double precision, with
/// each operator as onnx's docs/Operators.md describes it. Returns all values by name, constants
/// included. Throws for a value that is read and not there, and for operators that ResNets do not
/// need.
std::map<std::string, OnnxValue> run_onnx(const std::string& file, const OnnxValue& images);

}  // namespace lockstep::test
