#pragma once

#include <string_view>

/// Recognizes, by their names, files beside shards that are not shards, and shards that do not look like shards.

namespace millrace {

/// Returns the advice for a shard whose name another program has changed; "" for other names. Such names are
/// x.tar?download=true, x.tar.1, and those of the pieces of a shard that was split: x.tar.aa, x.tar.part-00, x.tgz.001.
/// It completes "FILE: ...".
std::string_view MisnamedShardAdvice(std::string_view key);

/// Returns true for the files that tools write of data and of their own work, by the name: tables, texts, logs,
/// checksums and the like. Among raw objects it may be a sample.
bool IsSideFile(std::string_view key);

/// Returns false for objects beside shards that hold no samples by their names: side files, and files that programs for
/// training, indexing, checking and downloading leave there. Returns true for images, sounds, arrays and all other
/// names.
bool MayBeSample(std::string_view key);

}  // namespace millrace
