#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "aws/credentials.h"
#include "aws/settings.h"
#include "net/http_client.h"
#include "net/runtime.h"

namespace millrace {

/// Fetches credentials: reads the settings again, finds their source and drives it; files and processes on the CPU
/// pool, calls on an event loop. Thread-safe. All that is given outlives it.
class CredentialLoader {
 public:
  CredentialLoader(Runtime& runtime, HttpClient& http, std::shared_ptr<const AwsEnvironment> environment,
                   uint64_t jitter_key);
  /// Cancels what is in flight and waits for its callback. Not on a loop or in the CPU pool.
  ~CredentialLoader();
  CredentialLoader(const CredentialLoader&) = delete;
  CredentialLoader& operator=(const CredentialLoader&) = delete;

  /// Call it one at a time. `done` is called once, on a loop; Cancelled after the destructor has begun.
  void Fetch(CredentialsProvider::Fetched done);

 private:
  class Run;
  void OnEnded(const std::shared_ptr<Run>& run);

  Runtime& runtime_;
  HttpClient& http_;
  const std::shared_ptr<const AwsEnvironment> environment_;
  const uint64_t jitter_key_;
  std::mutex mutex_;
  std::condition_variable idle_;
  uint64_t fetches_ = 0;
  bool closing_ = false;
  std::unordered_set<std::shared_ptr<Run>> runs_;  // in flight: one, or two while one delivers its result
};

}  // namespace millrace
