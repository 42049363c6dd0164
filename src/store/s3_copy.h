#pragma once

#include <cstdint>
#include <string>

#include "s3/client.h"

namespace millrace {

/// States how a copy is divided.
struct S3CopyParts {
  uint64_t largest_whole = uint64_t{5} << 30;  // AWS copies no more than this by one request
  uint64_t part = uint64_t{256} << 20;         // at least; more of an object that would have over 10,000
  int at_once = 8;
};

/// Returns the bytes of each part but the last, of an object of `size`.
uint64_t CopyPartSize(uint64_t size, const S3CopyParts& parts);

/// Makes the store copy an object, also a large one: by CopyObject, or by a multipart upload of parts that it copies,
/// many at a time. The upload is made with the type, the metadata and the tags of the source, and is aborted unless
/// completed. If these credentials may not read the tags, the upload is made without them, and with a warning.
/// FailedPrecondition if the source changes before or meanwhile. If a store ignores that condition (Ceph), the target
/// may be the newer version then, but never a mixture. Returns at once; `done` is called once, on a loop of the client,
/// which must outlive it.
void CopyOnS3(S3Client& client, S3CopySource from, std::string bucket, std::string key, CopyOptions options,
              const S3CopyParts& parts, PutCallback done);

}  // namespace millrace
