#pragma once

#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "base/mapped_file.h"
#include "dataset/dataset.h"
#include "store/stores.h"

namespace millrace {

/// A file that is made from an index once and kept with it. Immutable and thread-safe.
class KeptFile {
 public:
  KeptFile(std::string uri, MappedFile file) : uri_(std::move(uri)), file_(std::move(file)) {}
  KeptFile(std::string uri, std::string bytes) : uri_(std::move(uri)), text_(std::move(bytes)) {}

  /// Where it lies; for messages.
  const std::string& uri() const { return uri_; }
  ByteSpan bytes() const { return file_ ? file_->bytes() : AsBytes(text_); }

 private:
  const std::string uri_;
  std::optional<MappedFile> file_;
  std::string text_;
};

struct KeepOptions {
  /// Of the file: it must say all that its bytes depend on, since the cache folder has one of each name.
  std::string name;
  /// Whether the bytes are such a file, as far as a look at each opening can tell. Those that are not are made again.
  absl::FunctionRef<absl::Status(ByteSpan)> check;
  /// Whether all of them are undamaged: asked of what was made or copied from S3 just now.
  absl::FunctionRef<absl::Status(ByteSpan)> verify;
  /// Writes the file; the same bytes each time.
  absl::FunctionRef<absl::Status(ObjectWriter&)> make;
  std::stop_token stop;  // looked at while others make the file or it is copied
};

/// Finds the file, or makes it: beside the data as `.millrace/NAME` where they can be written to, else in the cache
/// folder. Of data on S3, a copy lies in the cache folder in any case. Of several processes of one machine, one makes
/// it and the others wait. Blocking. Errors are those of `make` and `check`, Cancelled, and those of a disk that cannot
/// hold it.
absl::StatusOr<std::shared_ptr<const KeptFile>> FindOrMake(Stores& stores, const Dataset& dataset,
                                                           const KeepOptions& options);

}  // namespace millrace
