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

/// The format of images that a field holds and that is not decoded, by the end of its name ("HEIF"); "" for others.
std::string_view UndecodedFormat(std::string_view field);

/// True for a format of cameras and browsers, such as HEIF, in which photos come.
bool IsPhotoFormat(std::string_view field);

/// Sentences on signs in the names of shards and classes that the data set is not the one that its user means. Signs
/// are those of shard_names.h, and raw objects in the folders train and val, which become classes. Looks up every
/// object. A field whose name is that of an image format that is not decoded is another such sign.
absl::StatusOr<std::vector<std::string>> WarningsOfNames(const DatasetPlace& place, const Index& index);

/// Sentences for what was passed over and may be samples: so many side files beside the shards, files of many samples
/// beside images, and shards under changed names.
std::vector<std::string> WarningsOfSideFiles(const SkippedObjects& skipped, uint64_t shards);

/// A sentence for keys that come again, if there are some. Memory and errors: FindDuplicateKeys.
absl::StatusOr<std::vector<std::string>> WarningsOfKeys(const Index& index, MemoryBudget& memory,
                                                        const std::stop_token& stop);

}  // namespace millrace
