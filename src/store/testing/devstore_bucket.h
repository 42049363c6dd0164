#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "base/rng.h"
#include "devstore/devstore.h"
#include "store/s3_store.h"

namespace millrace {

/// Is a bucket of a devstore in this process. Each client has a runtime, connections and experience of its own.
class DevstoreBucket {
 public:
  static constexpr const char* kName = "bkt";

  /// `adjust` may change the settings of the clients.
  explicit DevstoreBucket(DevstoreOptions options, std::function<void(S3Config&)> adjust = {})
      : adjust_(std::move(adjust)) {
    options.buckets = {kName};
    config_.credentials = {options.access_key, options.secret_key, ""};
    config_.region = options.region;
    absl::StatusOr<std::unique_ptr<Devstore>> started = Devstore::Start(std::move(options));
    EXPECT_TRUE(started.ok()) << started.status();
    server_ = *std::move(started);
    config_.endpoint_url = server_->url();
  }

  struct Client {
    Client(const S3Config& config, int io_threads)
        : runtime({.io_threads = io_threads, .cpu_threads = 1, .memory_bytes = 64 << 20}),
          s3(runtime, config),
          store(runtime, s3, kName) {}
    Runtime runtime;
    S3Client s3;
    S3Store store;
  };

  /// Makes a client with the changed settings if `adjusted`, else one whose settings suit the server.
  std::unique_ptr<Client> NewClient(bool adjusted = true, int io_threads = 1) const {
    S3Config config = config_;
    if (adjusted && adjust_) adjust_(config);
    return std::make_unique<Client>(config, io_threads);
  }

  Devstore& server() { return *server_; }

 private:
  const std::function<void(S3Config&)> adjust_;
  S3Config config_;
  std::unique_ptr<Devstore> server_;  // outlives its clients
};

/// Makes bytes that depend on nothing but these numbers.
inline std::string SeededBytes(size_t size, uint64_t seed) {
  Rng rng(HashKey(0x62797465, {seed}));
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(rng.Next());
  return bytes;
}

inline MutableByteSpan WritableBytes(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()), text.size()};
}

}  // namespace millrace
