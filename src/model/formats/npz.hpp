#pragma once

#include <memory>
#include <string>

#include "model/formats/stored_tensor.hpp"
#include "model/formats/zip.hpp"

namespace lockstep::model {

std::string npz_bytes(const Model& model);

/// True when the zip has an array of numpy's.
bool is_npz(const ZipReader& zip);

/// Reads the arrays' headers. Throws InputError saying what is wrong with one.
TensorFile read_npz(std::shared_ptr<const ZipReader> zip);

/// The notes as a zip's comment, without names of classes that do not fit; and back. A comment of
/// another form has no notes.
std::string notes_as_comment(std::map<std::string, std::string> notes);
std::map<std::string, std::string> notes_in_comment(std::string_view comment);

}  // namespace lockstep::model
