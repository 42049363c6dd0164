#pragma once

#include <sys/stat.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "devstore/storage.h"

/// The side folder of a served folder (ROOT/.devstore) keeps attributes that a plain file cannot hold. Each record is a
/// small text file of lines "name value", values percent-encoded.

namespace millrace {

using Fields = std::vector<std::pair<std::string, std::string>>;

std::string EncodeFields(const Fields& fields);
/// Broken lines are skipped: a damaged record counts as missing.
Fields DecodeFields(std::string_view text);
std::string FieldOr(const Fields& fields, std::string_view name, std::string_view fallback = "");

void AppendAttributes(const ObjectAttributes& attributes, Fields* fields);
ObjectAttributes ReadAttributes(const Fields& fields);

/// Distinguishes one state of a file from the others, so that a record is not used for a file that another program has
/// put in its place.
struct FileIdentity {
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;
  int64_t changed_ns = 0;  // ctime: no program can set it back
  friend bool operator==(const FileIdentity&, const FileIdentity&) = default;
};
FileIdentity IdentityOf(const struct stat& stat);

/// Returns the ETag of a file that devstore did not write. It has the form of an MD5, and is stable as long as the file
/// is.
std::string DerivedETag(const FileIdentity& identity);

/// With a `changed_ns` of 0 it is a record of the file whatever its ctime is: a rename changes that.
std::string EncodeObject(std::string_view key, const ObjectRecord& record, const FileIdentity& identity);
/// Returns nullopt if the record is broken or belongs to another state of the file.
std::optional<ObjectRecord> DecodeObject(std::string_view text, const FileIdentity& identity);

/// Returns whether a key can be the path of a file below a bucket as it stands; if not, its object is stored in the
/// side folder.
bool IsPlainPath(std::string_view key);

// These access files, with errors in the terms of S3.
absl::Status FileError(const absl::Status& status);
absl::Status FileError(int error, std::string_view doing, std::string_view name);
absl::StatusOr<std::string> ReadTextFile(const std::string& path);  // NotFound (a plain Status) if it does not exist
/// Writes the file as a whole, by a temporary file beside it. Makes missing folders.
absl::Status WriteTextFile(const std::string& path, std::string_view text);
absl::Status MakeFolders(const std::string& path);

}  // namespace millrace
