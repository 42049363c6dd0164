#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/status.h"

/// This header parses documents of EC2 about volumes, snapshots and instances, and its errors. Pure. Source: "Amazon
/// EC2 API Reference", version 2016-11-15.

namespace millrace {

using Ec2Tags = std::map<std::string, std::string>;

struct Ec2Attachment {
  std::string instance;
  std::string device;  // "/dev/sdf"
  std::string state;   // attaching, attached, busy, detaching
};

struct Ec2Volume {
  std::string id;
  std::string zone;
  std::string state;     // creating, available, in-use, deleting, error
  std::string snapshot;  // that it was made from; "": none
  uint64_t size_gib = 0;
  std::string type;
  uint64_t iops = 0;
  uint64_t throughput = 0;
  std::vector<Ec2Attachment> attachments;
  Ec2Tags tags;
};

struct Ec2Snapshot {
  std::string id;
  std::string volume;
  std::string state;     // pending, completed, error
  std::string progress;  // "40%"
  Ec2Tags tags;
  absl::Time started = absl::InfiniteFuture();  // as long as EC2 does not tell
};

struct Ec2Instance {
  std::string id;
  std::string state;                 // pending, running, shutting-down, stopping, stopped, terminated
  std::vector<std::string> devices;  // the names that are taken
};

/// Holds a page of an answer; `next` asks for the page behind it, "" if there is none.
template <typename T>
struct Ec2Page {
  std::vector<T> entries;
  std::string next;
};

/// Parses the answers to DescribeVolumes, DescribeSnapshots and DescribeInstances. InvalidArgument for anything else.
absl::StatusOr<Ec2Page<Ec2Volume>> ParseVolumes(std::string_view xml);
absl::StatusOr<Ec2Page<Ec2Snapshot>> ParseSnapshots(std::string_view xml);
absl::StatusOr<Ec2Page<Ec2Instance>> ParseInstances(std::string_view xml);

/// Returns the error that an answer with another status than 200 means, for a call of `action`:
///   Unavailable         EC2 asks to slow down, or has failed: the same call may succeed later
///   FailedPrecondition  a thing is in another state than the call needs, perhaps by now no longer
///   NotFound            there is no such thing, perhaps not yet
///   Unauthenticated, PermissionDenied (with the permission that is lacking), ResourceExhausted (a limit of the
///   account), InvalidArgument
absl::Status Ec2Error(std::string_view action, int http_status, std::string_view xml);

/// Returns true if the credentials have ended, or the clock is wrong, so that the same call may succeed with a new
/// signature.
bool IsExpiredSignature(std::string_view xml);

/// Makes the body of a call of the EC2 Query API.
std::string Ec2Body(std::string_view action, const std::vector<std::pair<std::string, std::string>>& parameters);

}  // namespace millrace
