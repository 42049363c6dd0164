#pragma once

#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"
#include "devstore/ec2_query.h"

namespace millrace {

/// This is a strict model of the part of EC2 that has to do with volumes. It has zones, states that pass one after the
/// other, ClientToken, tags, and refusals with the codes of EC2. Volumes and snapshots are folders below `folder`, so
/// that the files that a job writes to one can be followed. An attached volume is linked at
/// FOLDER/instances/INSTANCE/disk/by-id/nvme-Amazon_Elastic_Block_Store_VOLUME. Everything else is in memory.
/// Thread-safe.
class Ec2Fake {
 public:
  /// `looks` is how many descriptions still show a transient state (pending, creating, attaching, detaching,
  /// shutting-down, deleting).
  Ec2Fake(std::string folder, std::string region, int looks)
      : folder_(std::move(folder)), region_(std::move(region)), looks_(looks) {}

  /// Returns the answer's document.
  absl::StatusOr<std::string> Do(const Ec2Query& query);

  /// Returns a document of an instance's metadata ("instance-id"); nullopt if there is none, or no such instance that
  /// runs.
  std::optional<std::string> Metadata(const std::string& instance, std::string_view name);
  /// Announces a spot interruption. False if no such instance runs.
  bool Interrupt(const std::string& instance, absl::Time at);

 private:
  struct FakeAttachment {
    std::string instance;
    std::string device;
    std::string state;
    int looks = 0;
  };
  struct FakeVolume {
    std::string id, zone, state, snapshot, type, token;
    uint64_t size = 0, iops = 0, throughput = 0;
    int looks = 0;  // that the state still lasts
    std::optional<FakeAttachment> attachment;
    std::map<std::string, std::string> tags;
  };
  struct FakeSnapshot {
    std::string id, volume, state, started;
    uint64_t size = 0;
    int looks = 0;
    std::map<std::string, std::string> tags;
  };
  struct FakeInstance {
    std::string id, zone, type, state;
    int looks = 0;
    std::optional<absl::Time> interruption;
    std::map<std::string, std::string> tags;
  };
  using Result = absl::StatusOr<std::string>;

  Result RunInstances(const Ec2Query& query);
  Result TerminateInstances(const Ec2Query& query);
  Result DescribeInstances(const Ec2Query& query);
  Result CreateVolume(const Ec2Query& query);
  Result DeleteVolume(const Ec2Query& query);
  Result DescribeVolumes(const Ec2Query& query);
  Result AttachVolume(const Ec2Query& query);
  Result DetachVolume(const Ec2Query& query);
  Result CreateSnapshot(const Ec2Query& query);
  Result DeleteSnapshot(const Ec2Query& query);
  Result DescribeSnapshots(const Ec2Query& query);
  Result CreateTags(const Ec2Query& query);

  std::string NewId(std::string_view kind);
  absl::Status CheckZone(const std::string& zone) const;
  absl::Status CheckNewVolume(const Ec2Query& query);
  absl::StatusOr<FakeVolume*> FindVolume(const std::string& id);
  absl::StatusOr<FakeInstance*> FindInstance(const std::string& id);
  absl::StatusOr<std::map<std::string, std::string>> TagsFor(const Ec2Query& query, std::string_view kind) const;
  void Pass(FakeVolume& volume);
  void Detach(FakeVolume& volume);
  std::string VolumeFields(const FakeVolume& volume) const;
  std::string LinkOf(const FakeVolume& volume) const;
  std::string FolderOf(std::string_view kind, const std::string& id) const;
  /// Makes a folder, with a copy of what is in `from` unless that is "".
  static absl::Status CopyContents(const std::string& from, const std::string& to);

  const std::string folder_;
  const std::string region_;
  const int looks_;

  std::mutex mutex_;
  uint64_t last_id_ = 0;
  std::map<std::string, FakeVolume> volumes_;
  std::map<std::string, FakeSnapshot> snapshots_;
  std::map<std::string, FakeInstance> instances_;
  struct Made {
    std::string parameters;
    std::string volume;
  };
  std::map<std::string, Made> made_;  // by ClientToken
};

}  // namespace millrace
