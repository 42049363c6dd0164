#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "base/bytes.h"
#include "base/status.h"
#include "base/unique_fd.h"

namespace millrace {

/// Records who fetches what, among all users of a cache's folder, so that each range is fetched once. A claim is a lock
/// of bytes of the file `claims` (OFD locks; nothing is written there), which the system frees when a process dies.
/// Ranges that share 512 bytes may count as the same, also of two objects: then one waits in vain, which has a bound.
/// If the folder is removed meanwhile, each user makes the file again, or finds that of another, at the next claim.
/// Thread-safe.
class FetchClaims {
 public:
  static absl::StatusOr<std::unique_ptr<FetchClaims>> Open(const std::string& folder);
  /// Makes claims that count among the readers of this process alone.
  static std::unique_ptr<FetchClaims> OfProcess();
  /// Runs what waits.
  ~FetchClaims();

  /// Gives the range free when it is destroyed. Must not outlive the FetchClaims.
  class Claim {
   public:
    Claim(FetchClaims& claims, ByteRange cells) : claims_(claims), cells_(cells) {}
    ~Claim() { claims_.Free(cells_); }
    Claim(const Claim&) = delete;
    Claim& operator=(const Claim&) = delete;

   private:
    FetchClaims& claims_;
    const ByteRange cells_;
  };
  /// Claims a range. Returns null if another read has claimed a part of it. `file` is the name of the object's file.
  std::shared_ptr<Claim> Take(const std::string& file, ByteRange range);

  /// Runs `retry` on a thread of its own when a claim was freed in this process, and every few milliseconds, until it
  /// returns true; it must not block.
  void Wait(absl::AnyInvocable<bool()> retry);

 private:
  FetchClaims(std::string path, UniqueFd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
  void Free(ByteRange cells);
  void Run();

  const std::string path_;
  std::mutex mutex_;
  UniqueFd fd_;  // -1: of this process alone
  std::condition_variable changed_;
  std::vector<ByteRange> own_;  // of this process, which the locks do not tell apart
  std::vector<absl::AnyInvocable<bool()>> waiting_;
  bool freed_ = false;
  bool stopping_ = false;
  std::thread thread_;  // since the first Wait
};

}  // namespace millrace
