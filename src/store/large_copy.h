#pragma once

#include <cstdint>
#include <stop_token>
#include <string>

#include "absl/functional/function_ref.h"
#include "store/object_store.h"

namespace millrace {

/// Copies an object between stores, or within one, by pieces that land in their final places in the order in which they
/// arrive: one that is late keeps its buffer and nothing else from going on. Two to eight pieces are in flight, 64 MiB
/// of them where they are small enough. The object is pinned by its ETag and checked against the store's checksum
/// (whole_check.h); it appears whole or not at all.
///
/// `advance` is told of bytes that have landed, each once, on the calling thread. Blocking; Cancelled soon after a
/// stop.
absl::StatusOr<ObjectInfo> CopyInPieces(ObjectStore& from, const ObjectInfo& source, ObjectStore& to,
                                        const std::string& key, absl::FunctionRef<void(uint64_t)> advance,
                                        std::stop_token stop = {});

}  // namespace millrace
