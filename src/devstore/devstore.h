#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "devstore/latency.h"

namespace millrace {

struct DevstoreOptions {
  static constexpr int kMaxThreads = 64;

  std::string root = "mem:";  // a folder whose sub-folders are buckets, or "mem:"
  std::string host = "127.0.0.1";
  uint16_t port = 0;  // 0: any free one
  int threads = 0;    // event loops; 0: as many as CPUs, at most 2
  bool tls = false;   // with a certificate made at the start; see ca_file()
  std::string access_key = "millrace";
  std::string secret_key = "millrace-secret";
  bool anonymous = false;     // signatures are not checked
  bool opaque_etags = false;  // ETags are not MD5s, as of objects that are encrypted by KMS
  std::string region = "us-east-1";
  std::vector<std::string> buckets;  // made at the start if they do not exist

  LatencyModel latency;
  uint64_t bandwidth = 0;           // of each connection, bytes a second; 0: unlimited
  uint64_t rate_per_prefix = 0;     // requests a second, 503 SlowDown beyond; 0: unlimited
  std::vector<std::string> faults;  // rules of faults.h
  uint64_t seed = 0;
  int64_t clock_offset_s = 0;  // of its clock, ahead of this machine's, as signatures and Date have it

  /// These are for a fake of EC2 beside S3 (ec2_fake.h): its folder, "" for none, and how many descriptions show
  /// transient states.
  std::string ec2_folder;
  int ec2_looks = 1;

  /// Gets one line for each answer, without secrets; called on many threads, one at a time.
  std::function<void(std::string_view)> access_log;
};

/// This is an S3-compatible server in this process, with event loops and threads of its own, for development and tests.
/// It serves from Start until it is destroyed, which closes all connections. Thread-safe.
///
///   ASSIGN_OR_RETURN(const std::unique_ptr<Devstore> store, Devstore::Start({.root = "mem:", .buckets = {"data"}}));
///   // clients use store->url(), for example "http://127.0.0.1:9000"
class Devstore {
 public:
  /// Returns InvalidArgument for options that make no sense, NotFound if the root is not a folder, AlreadyExists if the
  /// port is in use.
  static absl::StatusOr<std::unique_ptr<Devstore>> Start(DevstoreOptions options);
  ~Devstore();
  Devstore(const Devstore&) = delete;
  Devstore& operator=(const Devstore&) = delete;

  std::string url() const;  // "http://127.0.0.1:9000"
  uint16_t port() const;
  /// Returns the PEM of the authority that clients must trust; it is empty without TLS. The destructor removes the
  /// file.
  const std::string& ca_file() const;

  /// Returns the number of answers so far, by method and HTTP status (0: cut before the head).
  std::map<std::pair<std::string, int>, uint64_t> counters() const;

  /// Returns how often each of the options' faults was injected.
  std::vector<uint64_t> fault_firings() const;

 private:
  struct Impl;
  explicit Devstore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace millrace
