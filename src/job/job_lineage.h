#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "base/crypto.h"
#include "base/status.h"
#include "channel/channel_items.h"
#include "channel/pipe_feeder.h"
#include "channel/training_job.h"
#include "supervisor/run_journal.h"

namespace millrace {

/// The record of the data that a job reads, as lines of JSON (supervisor/run_journal.h). `object` has the URI, ETag and
/// size of an object of a channel; these lines come in order. `channel` has their number, bytes and digest, and the
/// order in which they are read. `epoch` comes for each epoch that a program got of a pipe, `code` for the commit of
/// the program, and `output` for what the job has saved at its end. The digest is the SHA-256 of the lines "URI, tab,
/// ETag, tab, size, line feed". Thread-safe; an error of the file comes once.
class JobLineage {
 public:
  static absl::StatusOr<std::unique_ptr<JobLineage>> Open(const std::string& path);

  /// Records the objects of a channel, which come before the channel itself. One channel at a time.
  absl::Status Object(const Channel& channel, std::string_view uri, const ObjectInfo& object);
  absl::Status Objects(const Channel& channel, const ChannelItems& items);
  /// If there are no objects, it is a folder that the program reads by itself, and they are not known.
  absl::Status End(const TrainingJob& job, const Channel& channel);
  absl::Status Epoch(const Channel& channel, const FedEpoch& fed);
  /// Records the program: where its repository is, and the commit.
  absl::Status Code(const std::string& url, const std::string& commit);
  /// An object that the job has left: `name` is "model" or "output".
  absl::Status Output(const std::string& name, const std::string& uri, const std::string& etag, uint64_t bytes);
  /// Records files below `uri`, in place of such an object.
  absl::Status OutputFiles(const std::string& name, const std::string& uri, uint64_t files);

 private:
  explicit JobLineage(std::unique_ptr<RunJournal> journal) : journal_(std::move(journal)) {}

  std::mutex mutex_;
  const std::unique_ptr<RunJournal> journal_;
  std::unique_ptr<Sha256Stream> digest_;  // of the channel
  uint64_t objects_ = 0;                  // likewise
  uint64_t bytes_ = 0;
};

}  // namespace millrace
