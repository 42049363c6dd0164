#pragma once

#include <memory>
#include <mutex>
#include <string>

#include "devstore/file_content.h"
#include "devstore/upload_table.h"

namespace millrace {

/// Holds unfinished uploads in a folder, one sub-folder each: the file `upload`, and a file for each part, whose name
/// says the part's number, ETag and checksum. They survive the server. Thread-safe.
class UploadFiles {
 public:
  explicit UploadFiles(std::string folder) : folder_(std::move(folder)) {}

  /// Reads what is there. Once, before anything else.
  void Load();

  const UploadTable& table() const { return table_; }
  absl::StatusOr<std::string> Create(Upload upload);
  /// Moves the content's file into the upload.
  absl::Status PutPart(const std::string& id, int number, FileContent& content, UploadPart part);
  absl::Status Remove(const std::string& id);

 private:
  void LoadUpload(const std::string& id);

  const std::string folder_;
  UploadTable table_;
  std::mutex mutex_;  // so that no part comes into the folder of an upload that is being removed
};

}  // namespace millrace
