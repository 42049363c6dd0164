#pragma once

#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/memory_budget.h"
#include "base/status.h"
#include "dataset/dataset_place.h"
#include "dataset/index.h"
#include "dataset/skipped_objects.h"

namespace millrace {

/// Returns the format of a field's images if it is not decoded, by the end of the field's name ("HEIF"); "" for other
/// fields.
std::string_view UndecodedFormat(std::string_view field);

/// Returns true for a format in which cameras and browsers store photos, such as HEIF.
bool IsPhotoFormat(std::string_view field);

/// Returns sentences on signs in the names of shards and classes that the data set is not the one that its user means.
/// Signs are those of shard_names.h, and raw objects in the folders train and val, which become classes. Another sign
/// is a field whose name is that of an image format that is not decoded. Looks up every object.
absl::StatusOr<std::vector<std::string>> WarningsOfNames(const DatasetPlace& place, const Index& index);

/// Returns sentences on objects that were passed over and may be samples: so many side files beside the shards, files
/// of many samples beside images, and shards under changed names.
std::vector<std::string> WarningsOfSideFiles(const SkippedObjects& skipped, uint64_t shards);

/// Returns a sentence on duplicate keys, if there are some. Memory and errors: FindDuplicateKeys.
absl::StatusOr<std::vector<std::string>> WarningsOfKeys(const Index& index, MemoryBudget& memory,
                                                        const std::stop_token& stop);

}  // namespace millrace
