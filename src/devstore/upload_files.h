#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "devstore/file_content.h"
#include "devstore/joint_file.h"
#include "devstore/upload_table.h"

namespace millrace {

/// Unfinished uploads in a folder, one sub-folder each: the file `upload`, and for a part `N` a record `N.part` that
/// names the file of its bytes or says where in the file `joint` they are. They survive the server. Thread-safe.
class UploadFiles {
 public:
  explicit UploadFiles(std::string folder) : folder_(std::move(folder)) {}

  /// Reads what is there. Once, before anything else.
  void Load();

  const UploadTable& table() const { return table_; }
  absl::StatusOr<std::string> Create(Upload upload);
  /// A place for a part beside the others; nullptr when it needs a file of its own. NoSuchUpload.
  absl::StatusOr<std::shared_ptr<JointPlace>> ClaimPlace(const std::string& id, int number, uint64_t bytes);
  /// Moves the content's file into the upload, or keeps its place.
  absl::Status PutPart(const std::string& id, int number, std::shared_ptr<FileContent> content, UploadPart part);
  absl::Status Remove(const std::string& id);

 private:
  /// The sub-folder of an upload.
  struct Folder {
    explicit Folder(std::string at) : path(std::move(at)), joint(std::make_shared<JointFile>(path + "/joint")) {}
    const std::string path;
    const std::shared_ptr<JointFile> joint;
    std::mutex mutex;  // for changes of the files that are in it
    bool removed = false;
  };

  void LoadUpload(const std::string& id);
  absl::StatusOr<UploadPart> LoadPart(const Folder& folder, int number, const std::string& record) const;
  std::shared_ptr<Folder> Insert(const std::string& id);
  absl::StatusOr<std::shared_ptr<Folder>> Find(const std::string& id);

  const std::string folder_;
  UploadTable table_;
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Folder>> folders_;  // of the uploads of the table
};

}  // namespace millrace
