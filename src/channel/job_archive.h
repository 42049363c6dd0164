#pragma once

#include <cstdint>
#include <stop_token>
#include <string>
#include <vector>

#include "store/stores.h"

namespace millrace {

/// Describes how the saving of an archive ended.
struct SavedArchive {
  uint64_t bytes = 0;    // of the object; 0: there is none
  std::string etag;      // that of the archive
  bool changed = false;  // files were written to meanwhile, or removed: it has their older bytes, or lacks them
  std::vector<std::string> broken_links;  // below the folder, behind which there is nothing; it lacks them
  absl::Status lacks;                     // why it lacks other files; OK: it has them all
};

/// Writes all that a folder has as one object, a tar that gzip has compressed, as SageMaker keeps models: files behind
/// links stand there in place of the links. The names in it begin below the folder; folders without files are left out.
/// Nothing is kept on the disk. The object appears whole or not at all, and is not made if the folder has nothing or is
/// not there. If files cannot be read, the object has the others.
///
/// Runs the program `tar`; if that cannot run or is killed, there is no object, and `lacks` says so. Blocking;
/// Cancelled soon after a stop; the errors of the store.
absl::StatusOr<SavedArchive> SaveArchive(Stores& stores, const std::string& folder, ObjectStore& store,
                                         const std::string& key, const std::stop_token& stop);

/// Writes each file that a folder has, also behind links, as an object of its name below `prefix`, in place of what is
/// there. A file that is written to meanwhile has the bytes that it had at some moment. Returns how many there are. If
/// files cannot be read, the others are written first. Blocking; Cancelled soon after a stop.
absl::StatusOr<uint64_t> SaveFiles(Stores& stores, const std::string& folder, ObjectStore& store,
                                   const std::string& prefix, const std::stop_token& stop);

}  // namespace millrace
