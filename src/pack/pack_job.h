#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "decode/reencode.h"
#include "shard/data_kind.h"

namespace millrace {

/// Is the job of packing into a destination: a run that continues there must have the same job. It is kept as JSON in
/// `.millrace/incomplete`, from before the first shard until the data set is complete.
struct PackJob {
  std::string source_uri;  // for messages; it may be another on each machine
  std::string source;      // hash of the source's objects: keys, sizes, ETags
  uint64_t samples = 0;
  std::string format;
  uint64_t shard_bytes = 0;
  std::string order;    // "kept", or "shuffled by seed N"
  std::string classes;  // hash of the class map; "": by their folders
  std::string fields;   // hash of those that are packed and their names; "": all
  std::string images;   // how they are stored again (ImagesOf); "": as they are
  std::string keys;     // how the format writes them (KeysOf); "": as they are
  uint64_t shards = 0;  // that follow from all this

  std::string ToJson() const;
  /// Returns InvalidArgument if it is not valid, or of another version.
  static absl::StatusOr<PackJob> FromJson(std::string_view text);

  /// Identifies the job. Does not depend on source_uri.
  uint64_t Id() const;
};

/// PackJob::fields if they are those of NamesForLoaders().
inline constexpr std::string_view kNamesForLoaders = "for loaders";

/// Returns the change in words, for a job and for messages.
std::string ImagesOf(const ImageChange& images);

/// Returns "escaped" for tar (shard/tar_key.h), for a job, so that no job of a version that wrote other keys is
/// continued.
std::string KeysOf(DataKind format);

/// Is a finished job and its results. It is kept as JSON in `.millrace/packed`, so that the same command knows that
/// nothing is left to do.
struct PackRecord {
  PackJob job;
  std::string shards;  // hash of their sizes and ETags
  uint64_t samples = 0;
  uint64_t skipped = 0;
  uint64_t index_bytes = 0;

  std::string ToJson() const;
  static absl::StatusOr<PackRecord> FromJson(std::string_view text);
};

/// Describes a sample of the source that was left out, because it could not be read or is damaged.
struct SkippedSample {
  std::string key;
  std::string why;
};

/// Writes one JSON object {"key", "why"} a line. Bytes that are not UTF-8 become U+FFFD.
std::string SkippedToJsonLines(const std::vector<SkippedSample>& skipped);
/// Does the same with {"object", "why"}, for shards of the source that lost samples when they were indexed: it is not
/// known which samples.
std::string IncompleteToJsonLines(const std::vector<std::string>& objects);
/// Reads the samples in such lines. InvalidArgument, with the line, if it is not valid.
absl::StatusOr<std::vector<SkippedSample>> SkippedFromJsonLines(std::string_view lines);

/// Says how the job that was begun differs from the one that is asked for now, for a message; "" if they are the same.
std::string Difference(const PackJob& begun, const PackJob& asked);

}  // namespace millrace
