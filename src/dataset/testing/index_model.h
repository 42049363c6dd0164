#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "dataset/index.h"
#include "dataset/index_writer.h"
#include "dataset/string_writer.h"

/// A naive model of an index, with which tests compare the real one. For tests and benchmarks only.

namespace millrace::testing {

struct ModelField {
  std::string name;
  uint64_t offset = 0;  // of the object
  uint64_t length = 0;
  std::string encoding;  // of kinds that have them
};

struct ModelValue {
  std::string name;
  std::string text;
  std::string encoding;
};

struct ModelSample {
  std::string key;
  std::vector<ModelField> fields;  // as stored
  std::optional<uint32_t> crc32c = 0;
  std::string label;
  std::vector<ModelValue> values = {};  // by name
  std::optional<uint64_t> class_file_bytes = std::nullopt;
};

struct ModelObject {
  IndexedObject info;
  std::vector<ModelSample> samples;
};

struct Model {
  DataKind kind = DataKind::kTar;
  std::vector<ModelObject> objects;
};

/// Makes a data set of `samples` samples with all the variety that the format knows: odd keys, other fields and gaps,
/// empty objects, samples that were not read.
Model RandomModel(DataKind kind, uint64_t samples, Rng& rng);

/// Gives most of its samples values that the index holds, of all lengths from none on, and makes some objects
/// incomplete.
void AddValues(Model* model, Rng& rng);

/// Makes a usual data set: shards of 2,000 samples `%08d` with a JPEG and a class.
Model UsualModel(uint64_t samples, Rng& rng);

absl::StatusOr<std::string> WriteIndex(const Model& model);

/// Describes every sample and object of the index and all its totals, as text; or the first error.
std::string Describe(const Index& index);
/// Describes the model in the same way.
std::string Describe(const Model& model);

}  // namespace millrace::testing
