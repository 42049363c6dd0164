#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "devstore/storage.h"

namespace millrace {

class JointPlace;

/// The file of an unfinished upload in which parts lie as they will in the object: part n from (n - 1) x the length of
/// a part on. When these are all the parts there are, the file becomes the object and nothing is copied. Parts that do
/// not fit need files of their own.
///
/// So that a stored part stays as it was stored, its place is never given to another; so that an object stays as it is,
/// no place is given once it may be this file. Thread-safe.
class JointFile {
 public:
  /// The file is made when it is needed.
  explicit JointFile(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }

  /// A place for a part of so many bytes. nullptr when it does not fit, when the number's place is given away, or when
  /// the file cannot be written.
  static std::shared_ptr<JointPlace> Claim(const std::shared_ptr<JointFile>& file, int number, uint64_t bytes);
  /// No more places. Of a file that an earlier run left it is not known whether it is an object by now.
  void Seal();
  /// The place of a part that an earlier run has stored.
  static std::shared_ptr<JointPlace> Restore(const std::shared_ptr<JointFile>& file, int number, uint64_t offset);

  /// A link to the file in `folder`, as a temporary file of `bytes` bytes: those of so many stored parts, which the
  /// caller has seen to follow one another from the beginning. nullptr when other places are given away.
  std::shared_ptr<Content> Link(const std::string& folder, size_t parts, uint64_t bytes);

 private:
  friend class JointPlace;

  const std::string path_;
  std::mutex mutex_;
  uint64_t place_bytes_ = 0;  // as the first part had
  std::set<int> places_;      // given away, by number
  bool sealed_ = false;       // no more are given
};

/// A place in a joint file. Given back when it is destroyed, and the space of what was written with it, unless its part
/// was stored. Not thread-safe before that.
class JointPlace {
 public:
  JointPlace(std::shared_ptr<JointFile> file, int number, uint64_t offset, uint64_t bytes, UniqueFd fd)
      : file_(std::move(file)), number_(number), offset_(offset), bytes_(bytes), fd_(std::move(fd)) {}
  JointPlace(const JointPlace&) = delete;
  JointPlace& operator=(const JointPlace&) = delete;
  ~JointPlace();

  JointFile& file() const { return *file_; }
  uint64_t offset() const { return offset_; }
  uint64_t bytes() const { return bytes_; }
  /// For writing, until the part is stored.
  int fd() const { return fd_.get(); }
  /// The part counts from now on.
  void Keep() { fd_ = UniqueFd(-1); }

 private:
  const std::shared_ptr<JointFile> file_;
  const int number_;
  const uint64_t offset_;
  const uint64_t bytes_;
  UniqueFd fd_;
};

/// Writes a part into its place.
std::unique_ptr<BlobWriter> NewPlaceBlob(std::shared_ptr<JointPlace> place);

/// The joint file of these contents by a link in `folder`, if they are, in order, all that it holds; else nullptr.
std::shared_ptr<Content> LinkJointFile(const std::string& folder,
                                       const std::vector<std::shared_ptr<const Content>>& contents);

}  // namespace millrace
