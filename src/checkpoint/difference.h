#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "checkpoint/checkpoints.h"

namespace millrace {

/// Describes how two things of one name differ in two checkpoints.
struct CheckpointDifference {
  enum class Kind {
    kOnlyFirst,   // only the first checkpoint has it
    kOnlySecond,  // only the second one has it
    kType,        // tensors of another type or shape
    kElements,    // some elements of the tensor
    kLayout,      // not compared: parts of the tensor are stored in ways that do not fit together
    kValue,       // what is no tensor
  };
  std::string name;  // "model.0.weight"
  Kind kind = Kind::kValue;
  std::string first;      // what the first one has: type and shape, or the value
  std::string second;     // what the second one has
  uint64_t elements = 0;  // of the tensor that differ
};

/// Returns the differences between the states of two checkpoints, by name, also if different numbers of ranks have
/// saved them. Tensors are read and verified, except those that are stored in shards of equal checksums. At most 64 MiB
/// are held of each. InvalidArgument for a checkpoint that neither millrace.Checkpoints nor
/// millrace.torch.StorageWriter has saved.
absl::StatusOr<std::vector<CheckpointDifference>> CompareCheckpoints(const Checkpoints& first,
                                                                     const CheckpointManifest& first_manifest,
                                                                     const Checkpoints& second,
                                                                     const CheckpointManifest& second_manifest,
                                                                     const std::stop_token& stop);

}  // namespace millrace
