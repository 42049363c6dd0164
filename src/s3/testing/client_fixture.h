#pragma once

#include <gtest/gtest.h>

#include <cstdio>
#include <future>
#include <string>
#include <string_view>
#include <utility>

#include "net/testing/scripted_server.h"
#include "s3/client.h"

namespace millrace {

inline std::string Pattern(size_t size) {
  std::string text(size, '\0');
  for (size_t i = 0; i < size; ++i) text[i] = static_cast<char>('a' + i * 11 % 26);
  return text;
}

inline std::string Head(int status, size_t length, std::string_view more = "") {
  return "HTTP/1.1 " + std::to_string(status) + " Scripted\r\nContent-Length: " + std::to_string(length) + "\r\n" +
         std::string(more) + "\r\n";
}

/// Returns the whole answer to a ranged GET of `object`.
inline std::string Answer(const std::string& object, const std::string& request) {
  uint64_t first = 0;
  uint64_t last = 0;
  EXPECT_EQ(std::sscanf(request.substr(request.find("Range: ")).c_str(), "Range: bytes=%lu-%lu", &first, &last), 2)
      << request;
  const std::string body = object.substr(first, last - first + 1);
  return Head(206, body.size(),
              "ETag: \"e\"\r\nContent-Range: bytes " + std::to_string(first) + "-" + std::to_string(last) + "/" +
                  std::to_string(object.size()) + "\r\n") +
         body;
}

class S3ClientTest : public ::testing::Test {
 protected:
  S3Config Config(const ScriptedServer& server, std::string_view scheme = "http") {
    S3Config config;
    config.endpoint_url = std::string(scheme) + "://127.0.0.1:" + std::to_string(server.port());
    config.credentials = {"key", "secret", ""};
    return config;
  }

  absl::StatusOr<GetResult> Get(S3Client& client, std::string& buffer, GetOptions options) {
    std::promise<absl::StatusOr<GetResult>> done;
    client.Get("bucket", "key", {reinterpret_cast<std::byte*>(buffer.data()), buffer.size()}, std::move(options),
               [&](absl::StatusOr<GetResult> result) { done.set_value(std::move(result)); });
    return done.get_future().get();
  }

  Runtime runtime_{{.io_threads = 2, .cpu_threads = 1, .memory_bytes = 1 << 20}};
};

}  // namespace millrace
